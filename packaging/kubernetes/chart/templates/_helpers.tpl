{{- define "fawn.labels" -}}
app.kubernetes.io/name: fawn
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fawn.selector" -}}
app.kubernetes.io/name: fawn
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fawn.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "%s-data" .Release.Name) }}
{{- end }}

{{- define "fawn.config" -}}
config_version: 1
http:
  listen: 0.0.0.0:8080
  peers: {{ toJson .Values.http.peers }}
sandbox:
  provider: kubernetes
  image: {{ .Values.sandboxImage | quote }}
  kubernetes:
    claim: {{ include "fawn.claim" . | trim | quote }}
    claim_path: /var/lib/fawn
    runtime_class: {{ .Values.sandbox.runtimeClass | quote }}
    ready_pods: {{ .Values.sandbox.readyPods | default 0 }}
    pull_secret: {{ .Values.imagePullSecret | quote }}
{{- end }}

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

{{/* Whether services share PostgreSQL: then each has a claim of its own. */}}
{{- define "fawn.shared" -}}
{{- if dig "database" "replicas" false .Values.config }}yes{{ end }}
{{- end }}

{{/* The names of all claims, as a list. */}}
{{- define "fawn.claims" -}}
{{- $claims := list }}
{{- if include "fawn.shared" . }}
{{- range until (int (.Values.replicas | default 1)) }}
{{- $claims = append $claims (printf "data-%s-%d" $.Release.Name .) }}
{{- end }}
{{- else }}
{{- $claims = append $claims (include "fawn.claim" . | trim) }}
{{- end }}
{{- toJson $claims }}
{{- end }}

{{/* Refuse what cannot work. */}}
{{- define "fawn.check" -}}
{{- if and (gt (int (.Values.replicas | default 1)) 1) (not (include "fawn.shared" .)) }}
{{- fail "replicas: several need one PostgreSQL database: set config.database.url and config.database.replicas=true (docs/fleet.md)" }}
{{- end }}
{{- if and (include "fawn.shared" .) .Values.persistence.existingClaim }}
{{- fail "persistence.existingClaim: with config.database.replicas each service has a claim of its own, which is made" }}
{{- end }}
{{- with .Values.ingress }}
{{- if and .enabled (not (and .host .tlsSecret .proxies)) }}
{{- fail "ingress: name its host, tlsSecret and proxies (the addresses of the controller's pods)" }}
{{- end }}
{{- end }}
{{- if and (dig "serviceMonitor" "enabled" false (.Values.monitoring | default dict)) (not (dig "metrics" "enabled" false .Values.config)) }}
{{- fail "monitoring.serviceMonitor: there are no metrics: set config.metrics.enabled=true" }}
{{- end }}
{{- end }}

{{/* Seconds that turns may take to end at a stop. */}}
{{- define "fawn.grace" -}}
{{- dig "limits" "grace_seconds" 10 .Values.config | int }}
{{- end }}

{{- define "fawn.config" -}}
config_version: 1
http:
  listen: 0.0.0.0:8080
  peers: {{ toJson .Values.http.peers }}
  {{- with .Values.ingress }}
  {{- if .enabled }}
  hosts: {{ list .host | toJson }}
  proxies: {{ toJson .proxies }}
  {{- end }}
  {{- end }}
sandbox:
  provider: kubernetes
  image: {{ .Values.sandboxImage | quote }}
  kubernetes:
    claim: {{ if include "fawn.shared" . }}$FAWN_CLAIM{{ else }}{{ include "fawn.claim" . | trim | quote }}{{ end }}
    claim_path: /var/lib/fawn
    runtime_class: {{ .Values.sandbox.runtimeClass | quote }}
    ready_pods: {{ .Values.sandbox.readyPods | default 0 }}
    pull_secret: {{ .Values.imagePullSecret | quote }}
{{- end }}

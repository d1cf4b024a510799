"""Say by their options what `curl` and `wget` do: `curl -sXPOST URL` is a `curl -X POST URL`.

The tables are those of curl 8 and wget 1.25. With an option that they do not have, it is not certain what happens.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from agent.permissions.patterns import MARKS, TEXT, VALUE, name_set

MAX_FORMS = 100
_CURL_VALUES = name_set(
    """
    abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config connect-timeout connect-to
    continue-at cookie cookie-jar create-file-mode crlfile curves data data-ascii data-binary data-raw data-urlencode
    delegation dns-interface dns-ipv4-addr dns-ipv6-addr dns-servers doh-url dump-ca-embed dump-header ech egd-file
    engine etag-compare etag-save expect100-timeout form form-string ftp-account ftp-alternative-to-user ftp-method
    ftp-port ftp-ssl-ccc-mode happy-eyeballs-timeout-ms haproxy-clientip header hostpubmd5 hostpubsha256 hsts interface
    ip-tos ipfs-gateway json keepalive-cnt keepalive-time key key-type krb libcurl limit-rate local-port login-options
    mail-auth mail-from mail-rcpt max-filesize max-redirs max-time netrc-file noproxy oauth2-bearer output output-dir
    parallel-max parallel-max-host pass pinnedpubkey postquote prequote preproxy proto proto-default proto-redir proxy
    proxy-cacert proxy-capath proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile proxy-header proxy-key
    proxy-key-type proxy-pass proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype
    proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file range rate referer request
    request-target resolve retry retry-delay retry-max-time sasl-authzid service-name sigalgs socks4 socks4a socks5
    socks5-gssapi-service socks5-hostname speed-limit speed-time stderr telnet-option tftp-blksize time-cond tls-max
    tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket upload-file upload-flags
    url url-query user user-agent variable vlan-priority write-out
    """
)
_CURL_FLAGS = name_set(
    """
    anyauth append basic ca-native cert-status compressed compressed-ssh create-dirs crlf digest disable disable-eprt
    disable-epsv disallow-username-in-url doh-cert-status doh-insecure fail fail-early fail-with-body false-start follow
    form-escape ftp-create-dirs ftp-pasv ftp-pret ftp-skip-pasv-ip ftp-ssl-ccc ftp-ssl-control get globoff
    haproxy-protocol head help http0.9 http1.0 http1.1 http2 http2-prior-knowledge http3 http3-only
    ignore-content-length include insecure ipv4 ipv6 junk-session-cookies list-only location location-trusted
    mail-rcpt-allowfails manual metalink mptcp negotiate netrc netrc-optional next no-alpn no-buffer no-clobber
    no-keepalive no-npn no-progress-meter no-sessionid ntlm ntlm-wb out-null parallel parallel-immediate path-as-is
    post301 post302 post303 progress-bar proxy-anyauth proxy-basic proxy-ca-native proxy-digest proxy-http2
    proxy-insecure proxy-negotiate proxy-ntlm proxy-ssl-allow-beast proxy-ssl-auto-client-cert proxy-tlsv1 proxytunnel
    raw remote-header-name remote-name remote-name-all remote-time remove-on-error retry-all-errors retry-connrefused
    sasl-ir show-error show-headers silent skip-existing socks5-basic socks5-gssapi socks5-gssapi-nec ssl
    ssl-allow-beast ssl-auto-client-cert ssl-no-revoke ssl-reqd ssl-revoke-best-effort sslv2 sslv3 styled-output
    suppress-connect-headers tcp-fastopen tcp-nodelay tftp-no-options tls-earlydata tlsv1 tlsv1.0 tlsv1.1 tlsv1.2
    tlsv1.3 tr-encoding trace-ids trace-time use-ascii verbose version xattr
    """
)
_CURL_LETTERS: Mapping[str, str] = {
    **dict.fromkeys("#012346aBfgGhiIjklLMnNpqRsSvVZ:", ""),
    "A": "user-agent",
    "b": "cookie",
    "c": "cookie-jar",
    "C": "continue-at",
    "d": "data",
    "D": "dump-header",
    "e": "referer",
    "E": "cert",
    "F": "form",
    "H": "header",
    "J": "remote-name",
    "K": "config",
    "m": "max-time",
    "o": "output",
    "O": "remote-name",
    "P": "ftp-port",
    "Q": "quote",
    "r": "range",
    "t": "telnet-option",
    "T": "upload-file",
    "u": "user",
    "U": "proxy-user",
    "w": "write-out",
    "x": "proxy",
    "X": "request",
    "y": "speed-time",
    "Y": "speed-limit",
    "z": "time-cond",
}
_CURL_SENDING: Mapping[str, tuple[str, ...]] = {
    "request": ("-X", "--request"),
    **dict.fromkeys(("data", "data-ascii", "data-binary", "data-raw", "data-urlencode"), ("-d", "--data")),
    "json": ("-d", "--json"),
    **dict.fromkeys(("form", "form-string"), ("-F", "--form")),
    "upload-file": ("-T", "--upload-file"),
    **dict.fromkeys(("mail-from", "mail-rcpt"), ("-T", "--mail-from")),
    **dict.fromkeys(("quote", "postquote", "prequote"), ("-Q", "--quote")),
}
_CURL_WRITING = name_set(
    "output dump-header cookie-jar trace trace-ascii stderr etag-save hsts alt-svc libcurl dump-ca-embed"
)
_WGET_VALUES = name_set(
    """
    accept accept-regex append-output backups base bind-address bind-dns-address body-data body-file ca-certificate
    ca-directory certificate certificate-type ciphers compression config connect-timeout crl-file cut-dirs default-page
    directory-prefix dns-servers dns-timeout domains egd-file exclude-directories exclude-domains execute follow-tags
    ftp-password ftp-user header hsts-file http-passwd http-password http-user ignore-tags include-directories
    input-file level limit-rate load-cookies local-encoding max-redirect method output-document output-file password
    pinnedpubkey post-data post-file prefer-family private-key private-key-type progress proxy-passwd proxy-password
    proxy-user quota random-file read-timeout referer regex-type reject reject-regex rejected-log remote-encoding
    report-speed restrict-file-names retry-on-http-error save-cookies secure-protocol start-pos timeout tries
    use-askpass user user-agent wait waitretry warc-dedup warc-file warc-header warc-max-size warc-tempdir
    """
)
_WGET_FLAGS = name_set(
    """
    adjust-extension ask-password auth-no-challenge background backup-converted cache check-certificate clobber
    content-disposition content-on-error continue convert-file-only convert-links cookies debug delete-after directories
    dns-cache follow-ftp force-directories force-html ftps-clear-data-connection ftps-fallback-to-ftp ftps-implicit
    ftps-resume-ssl glob help host-directories hsts http-keep-alive https-only if-modified-since ignore-case
    ignore-length inet4-only inet6-only iri keep-session-cookies mirror netrc page-requisites parent passive-ftp
    preserve-permissions protocol-directories proxy quiet random-wait recursive relative remove-listing retr-symlinks
    retry-connrefused retry-on-host-error save-headers server-response show-progress span-hosts spider strict-comments
    timestamping trust-server-names unlink use-server-timestamps verbose version warc-cdx warc-compression warc-digests
    warc-keep-log xattr
    """
)
_WGET_LETTERS: Mapping[str, str] = {
    **dict.fromkeys("VhbdqvFcNSrkKmpEHLx46", ""),
    "a": "append-output",
    "A": "accept",
    "B": "base",
    "D": "domains",
    "e": "execute",
    "i": "input-file",
    "I": "include-directories",
    "l": "level",
    "n": "no",  # `-nc`: the next letter says what not
    "o": "output-file",
    "O": "output-document",
    "P": "directory-prefix",
    "Q": "quota",
    "R": "reject",
    "t": "tries",
    "T": "timeout",
    "U": "user-agent",
    "w": "wait",
    "X": "exclude-directories",
}
_WGET_SENDING = name_set("post-data post-file body-data body-file method execute")
_WGET_WRITING = name_set("output-document output-file append-output rejected-log save-cookies hsts-file warc-file")
_GLOB = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")  # curl reads these in an address itself
_EXPANDS = re.compile(f"[$`{VALUE}{TEXT}]")
_GLOB_NUMBER = re.compile(r"#\d+")  # in the name of a file: what a glob matched
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*+):/{1,3}")
_HOST = re.compile(r"[^/?#]*+")


@dataclass(slots=True)
class _Call:
    """The options of a call by name, with their values, and its other words.

    `hidden` is True if only the shell knows some of its options, `certain` False if the program reads more of them.
    """

    options: list[tuple[str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    hidden: bool = False
    certain: bool = True

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names]


@dataclass(frozen=True, slots=True)
class _Options:
    letters: Mapping[str, str]
    values: frozenset[str]
    flags: frozenset[str]
    has_equals: bool  # `--name=value`


_CURL = _Options(_CURL_LETTERS, _CURL_VALUES, _CURL_FLAGS, has_equals=False)
_WGET = _Options(_WGET_LETTERS, _WGET_VALUES, _WGET_FLAGS, has_equals=True)


def transfer_forms(name: str, words: Sequence[str], raw: Sequence[str]) -> tuple[list[str], bool]:
    """Return a form for each address, written file and way to send, and whether the options are certain.

    `raw` are the words as the line spells them: a glob is only names of files, an expansion may be several options.
    """
    call = _read_call(words, raw, _CURL if name == "curl" else _WGET)
    options, addresses = _read_curl(call) if name == "curl" else _read_wget(call)
    forms = [f"{name} {each}" for each in addresses]
    if len(options) * len(addresses) > MAX_FORMS:
        call.hidden = True
    else:
        forms += [f"{name} {option} {address}".strip() for option in options for address in addresses or [""]]
    hidden = [f"{name} {TEXT}"] if call.hidden or not call.certain else []
    return [*dict.fromkeys(forms), *hidden], call.certain


def _read_curl(call: _Call) -> tuple[list[str], list[str]]:
    """Return the options that send or write, and the addresses."""
    call.certain &= not call.values("config", "variable")
    words = [*call.words, *call.values("url")]
    addresses = [form for each in words for form in (each, _canonical_address(_GLOB.sub(VALUE, each)))]
    files = [value for name, value in call.options if name in _CURL_WRITING]
    if call.values("remote-name", "remote-name-all") or any(map(_names_file, call.values("write-out"))):
        files.append(TEXT)
    folders = call.values("output-dir") or [""]
    targets = {_target(posixpath.join(folder, _GLOB_NUMBER.sub(VALUE, each))) for folder in folders for each in files}
    sent = [f"{each} {value}" for name, value in call.options for each in _CURL_SENDING.get(name, ())]
    return [*sent, *(f"{each} {target}" for target in targets for each in ("-o", "--output"))], addresses


def _read_wget(call: _Call) -> tuple[list[str], list[str]]:
    """Return the options that send or write, and the addresses."""
    commands = [re.sub("[-_ ]", "", each).lower() for each in call.values("execute")]
    call.certain &= not call.values("config", "use-askpass") and all(each.startswith("robots=") for each in commands)
    addresses = [form for each in call.words for form in (each, _canonical_address(each))]
    if call.values("input-file"):  # it has addresses
        addresses += [f"{scheme}://{TEXT}" for scheme in ("http", "https", "ftp")]
    files = [value for name, value in call.options if name in _WGET_WRITING]
    if not call.values("output-document"):
        files += [posixpath.join(each, TEXT) for each in call.values("directory-prefix") or [""]]
    sent = [f"--{name} {value}" for name, value in call.options if name in _WGET_SENDING]
    return [*sent, *(f"{each} {_target(file)}" for file in files for each in ("-O", "--output-document"))], addresses


def _read_call(words: Sequence[str], raw: Sequence[str], options: _Options) -> _Call:
    """Read options as the program does. Where several are possible, all of them."""
    call = _Call()
    call.hidden = any(TEXT in word and _EXPANDS.search(spelt) for word, spelt in zip(words, raw, strict=True))
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        call.hidden |= bool(MARKS.match(word))
        if word.startswith("--") and len(word) > 2:
            _read_long(call, word[2:].removeprefix("expand-"), rest, options)
        elif word.startswith("-") and word not in ("-", "--"):
            _read_letters(call, word[1:], rest, options.letters)
        elif word != "--":
            call.words.append(word)
    return call


def _read_long(call: _Call, word: str, rest: list[str], options: _Options) -> None:
    name, equals, value = word.partition("=") if options.has_equals else (word, "", "")
    if MARKS.search(name):
        call.hidden = True
    elif name in options.flags or name.removeprefix("no-") in options.flags | (options.values - {name}):
        call.options.append((name, ""))
    else:
        found = [name] if name in options.values else [each for each in options.values if each.startswith(name)]
        is_flag = any(each.startswith(name.removeprefix("no-")) for each in options.flags)
        call.options += [(each, value if equals else "".join(rest[-1:])) for each in found]
        call.certain &= bool(found) or is_flag
        if rest and not equals and (name in options.values or (found and not is_flag)):
            rest.pop()


def _read_letters(call: _Call, letters: str, rest: list[str], names: Mapping[str, str]) -> None:
    for index, letter in enumerate(letters, 1):
        name = names.get(letter)
        if name is None:
            call.hidden = True
            call.certain &= bool(MARKS.match(letter))
            return
        if name in ("", "remote-name"):
            call.options.append((name, ""))
        elif name == "no":
            return
        else:
            call.options.append((name, letters[index:] or (rest.pop() if rest else "")))
            return


def _canonical_address(word: str) -> str:
    """Return an address with its scheme, without a login, and with its host in small letters."""
    scheme = _SCHEME.match(word)
    rest = word[scheme.end() :] if scheme else word
    host = _HOST.match(rest)
    end = host.end() if host else 0
    return f"{scheme[1].lower() if scheme else 'http'}://{unquote(rest[:end].rpartition('@')[2]).lower()}{rest[end:]}"


def _names_file(form: str) -> bool:
    """Return whether the form of `--write-out` may name a file."""
    return "%output" in form or form.startswith(("@", VALUE, TEXT))


def _target(path: str) -> str:
    """Return the file that is written. A relative path begins wherever the command runs."""
    if path in ("-", ""):
        return path
    path = re.sub("/+", "/", path)
    path = path if TEXT in path else posixpath.normpath(path)
    return path if path.startswith("/") else f"{VALUE}/{re.sub(r'^(?:[.][.]/)+', '', path)}"

"""Write one deed in many ways that bash reads as the same command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# `{0}` is the program, `{1}` its first argument, `{rest}` the others, `{deed}` all, and `␤` a new line.
CONTEXTS = r"""
{deed}
cd . && {deed}
true; {deed}
false || {deed}
{deed} &
! {deed}
( {deed} )
{ {deed}; }
: | {deed}
: |& {deed}
echo $({deed})
echo `{deed}`
echo "$({deed})"
echo "x$( {deed} )y"
x=$({deed})
x="$({deed})"; echo $x
A=1 {deed}
A=1 B="2 3" {deed}
export A=$({deed})
declare A=$({deed})
cat <({deed})
cat < <({deed})
true > >({deed})
cat <<< "$({deed})"
echo $((1 + $({deed} >&2; echo 1)))
echo ${x:-$({deed})}
echo "${x:=$({deed})}"
for i in 1; do {deed}; done
for i in $({deed}); do :; done
for ((i = 0; i < 1; i++)); do {deed}; done
while ! {deed}; do break; done
until {deed}; do break; done
if {deed}; then :; fi
if true; then {deed}; else :; fi
if false; then :; elif {deed}; then :; fi
case x in x) {deed};; esac
case $({deed}) in *) ;; esac
select x in 1; do {deed}; break; done <<< 1
f() { {deed}; }; f
function f { {deed}; }; f
f() { {0} "$@"; }; f {1} {rest}
f() { $1 $2 $3; }; f {0} {1} {rest}
[[ -n $({deed}) ]]
[ -z "$({deed})" ]
test -v 'a[$({deed})]'
[[ -v 'a[$({deed})]' ]]
[ -v 'a[$({deed})]' ]
x='a[$({deed})]'; echo $((x))
let 'a[$({deed})]=1'
printf -v 'a[$({deed})]' x
read 'a[$({deed})]' <<< 1
a=(1); unset 'a[$({deed})]'
declare 'a[$({deed})]=1'
declare -i x='a[$({deed})]'
x='$({deed})'; echo "${x@P}"
a=(1 $({deed}))
a[$({deed} >&2; echo 0)]=1
PS4='$({deed})'; set -x; true
eval '{deed}'
eval {0} {1} {rest}
eval "{0}" "{1}" "{rest}"
source <(echo '{deed}')
. <(echo '{deed}')
echo '{deed}' | bash
echo '{deed}' | sh
bash <<< '{deed}'
bash <<'X'␤{deed}␤X
bash <(echo '{deed}')
echo '{deed}' > s; bash s
echo '{deed}' > s; sh s
echo '{deed}' > s; sh ./s
echo '{deed}' > s; sh < s
echo '{deed}' > s; cat s | sh
echo '{deed}' > s; . ./s
echo '{deed}' > s; source $PWD/s
echo '{deed}' > s; chmod +x s; ./s
echo '{deed}' > s; chmod +x s; "$PWD/s"
echo '{deed}' > s; chmod +x s; $PWD/s
echo '{deed}' > s; chmod +x s; env ./s
echo '{deed}' > s; chmod +x s; timeout 5 ./s
echo '{deed}' > s; chmod +x s; nice -n 5 "$PWD"/s
echo '{deed}' > s; chmod +x s; echo x | xargs ./s
echo '{deed}' > s; chmod +x s; find . -maxdepth 0 -exec ./s \;
echo '{deed}' > s; chmod +x s; find . -name s -exec {} \;
echo '{deed}' > s; chmod +x s; bash -c ./s
mkdir bin; echo '{deed}' > bin/s; chmod +x bin/s; bin/s
printf '#!/bin/sh\n{deed}\n' > s; chmod +x s; ./s x
printf '#!/bin/sh\n{deed}\n' > s; chmod +x s; cp s /tmp/{0}-s; /tmp/{0}-s
cp /bin/sh h; echo '{deed}' > s; ./h s
bash -c '{deed}'
bash -ec '{deed}'
bash -c -e '{deed}'
bash -o pipefail -c '{deed}'
bash --norc -c '{deed}'
bash +x -c '{deed}'
bash -c '{0} "$@"' _ {1} {rest}
bash -c '$0 $1 $2' {0} {1} {rest}
bash -c "{0} \"\$1\" {rest}" _ {1}
sh -c '{deed}'
sh -c "{deed}"
sh -c $'{deed}'
sh -c '{0} '{1}' {rest}'
dash -c '{deed}'
bash -c "bash -c '{deed}'"
x='{deed}'; $x
x='{deed}'; bash -c "$x"
P={1}; {0} $P {rest}
P={1}; {0} "$P" {rest}
P={1}; {0} "${P}" {rest}
P={0}; $P {1} {rest}
P={0}; "$P" {1} {rest}
set -- {1} {rest}; {0} "$@"
set -- {1} {rest}; {0} $*
set -- {0} {1} {rest}; "$@"
a=({1} {rest}); {0} "${a[@]}"
a=({0} {1} {rest}); "${a[@]}"
read a <<< {1}; {0} $a {rest}
read a b c <<< '{0} {1} {rest}'; $a $b $c
for p in {1}; do {0} $p {rest}; done
for p in {0}; do $p {1} {rest}; done
echo {1} | while read p; do {0} $p {rest}; done
{0} $(echo {1}) {rest}
{0} `echo {1}` {rest}
{0} "$(echo {1})" {rest}
$(echo {0}) {1} {rest}
`echo {0}` {1} {rest}
"$(command -v {0})" {1} {rest}
{0} ${x:-{1}} {rest}
{0} ${x-"{1}"} {rest}
{0} ${x+y} {1} {rest}
{0} $x {1} {rest}
$x {0} {1} {rest}
{0} "${x:-{1}}" {rest}
{0} {{1},} {rest}
{{0},{1}}
{{0},{1},{rest}}
{0} > out {1} {rest}
{0} 2> out {1} {rest}
{0} 2>&1 {1} {rest}
{0} < /dev/null {1} {rest}
{0} &> out {1} {rest}
{0} >> out {1} > out2 {rest}
: | {0} > out {1} {rest}
true && {0} 2> out {1} {rest} | cat
> out {0} {1} {rest}
< /dev/null > out {0} {1} {rest}
{0} <<< x {1} {rest}
{0} <<X {1} {rest}␤x␤X
cat <<X␤$({deed})␤X
cat <<X | {deed}␤x␤X
cat <<'A' <<B; {deed}␤a␤A␤b␤B
{0} \␤  {1} {rest}
echo x # \␤{deed}
echo {1} {rest} | xargs {0}
echo {1} | xargs {0}
echo {deed} | xargs env
echo {1} | xargs -n 1 {0}
echo {1} {rest} | xargs --max-args 2 {0}
echo {1} {rest} | xargs -n2 -t {0}
echo {1} | xargs -I{} {0} {} {rest}
echo {1} | xargs -I % {0} % {rest}
echo {1} | xargs --replace=X {0} X {rest}
echo {1} | xargs -i {0} {} {rest}
echo '{deed}' | xargs -I{} sh -c '{}'
echo {0} | xargs -I{} {} {1} {rest}
: | xargs {deed}
: | xargs -0 {deed}
echo '{deed}' | xargs -d '\n' sh -c
find . -maxdepth 0 -exec {deed} \;
find . -maxdepth 0 -exec {deed} {} +
find . -maxdepth 0 -execdir {deed} ';'
find . -maxdepth 0 -exec sh -c '{deed}' \;
find . -maxdepth 0 -exec env {deed} \;
echo y | find . -maxdepth 0 -ok {deed} \;
x=-exec; find . -maxdepth 0 $x {deed} \;
env {deed}
env A=1 {deed}
env -u A {deed}
env --unset A {deed}
env --unset=A {deed}
env -uA {deed}
env -C . {deed}
env --chdir . {deed}
env -v {deed}
env -i PATH="$PATH" MARK="$MARK" {deed}
env - PATH="$PATH" MARK="$MARK" {deed}
env -i {deed}
env -S '{deed}'
env -S'{deed}'
env -vS '{deed}'
env --split-string '{deed}'
env --split-string='{deed}'
env -- {deed}
env env -u A env {deed}
env bash -c '{deed}'
command {deed}
command -p env PATH="$PATH" {deed}
command -- {deed}
builtin command {deed}
builtin eval '{deed}'
exec {deed}
exec -a x {deed}
exec -c env PATH="$PATH" MARK="$MARK" {deed}
(exec -l {deed})
nohup {deed}
nice {deed}
nice -n 5 {deed}
nice -5 {deed}
nice -n5 {deed}
nice --adjustment 5 {deed}
nice --adjustment=5 {deed}
timeout 5 {deed}
timeout 5s {deed}
timeout 1e2 {deed}
timeout 0x5 {deed}
timeout .5m {deed}
timeout -k 1 5 {deed}
timeout -k1 5 {deed}
timeout -s KILL 5 {deed}
timeout --signal KILL 5 {deed}
timeout --signal=KILL 5 {deed}
timeout --kill-after 1 5 {deed}
timeout --sig KILL 5 {deed}
timeout --foreground 5 {deed}
timeout "5" {deed}
setsid {deed}
setsid -w {deed}
setsid --wait {deed}
stdbuf -oL {deed}
stdbuf -o L {deed}
stdbuf --output L {deed}
stdbuf --output=0 {deed}
ionice {deed}
ionice -c 3 {deed}
ionice --class 3 {deed}
ionice -c3 nice -n 3 timeout 5 {deed}
time {deed}
time -p {deed}
coproc {deed}; wait
coproc C { {deed}; }; wait
trap '{deed}' EXIT
trap '{deed}' USR1; kill -USR1 $$
shopt -s expand_aliases␤alias g='{deed}'␤g
hash -p "$(command -v {0})" x; x {1} {rest}
BASH_CMDS[x]=$(command -v {0}); x {1} {rest}
ln -s "$(command -v {0})" y; PATH=.:$PATH; y {1} {rest}
cp "$(command -v {0})" {0}; ./{0} {1} {rest}
mapfile -C '{deed} #' -c 1 <<< x
compgen -C '{deed}' x
script -qc '{deed}' /dev/null
flock . {deed}
unshare -r {deed}
setarch -R {deed}
linux64 {deed}
setpriv {deed}
prlimit {deed}
choom -n 0 {deed}
chrt -o 0 {deed}
taskset 1 {deed}
busybox sh -c '{deed}'
sudo {deed}
sudo -u bob {deed}
sudo --user bob {deed}
sudo --user=bob -n {deed}
sudo -nu bob {deed}
sudo -s {deed}
sudo -i {deed}
sudo -C 3 {deed}
sudo A=1 {deed}
doas -u bob {deed}
chroot / {deed}
chroot --userspec 0:0 / {deed}
ssh localhost {deed}
su -c '{deed}'
parallel {0} ::: {1}
/lib64/ld-linux-x86-64.so.2 /bin/sh -c '{deed}'
{deed} 2>&1 | tee out
{ {deed}; } 2>&1 | cat
set -f; {0} {1} {rest}; set +f
time ( {deed} )
diff <({deed}) <(true)
[[ x =~ x ]] && {deed}
((1)) && {deed}
(( $({deed} >&2; echo 1) ))
: ${y:=$({deed})}
""".strip()
WORDS = (
    '"{}"',
    "'{}'",
    "\\{}",
    "$'{}'",
    '$"{}"',
    "''{}",
    '{}""',
    "\"{}\"''",
    "${{x-{}}}",
    "${{x:-'{}'}}",
    "$(printf %s {})",
    "`echo {}`",
    "{{{},}}",
    '"$(echo {})"',
)


def disguised_words(word: str) -> Iterator[str]:
    """Yield ways to write a word."""
    yield from (form.format(word) for form in WORDS)
    first, rest = word[:1], word[1:]
    yield f"{first}''{rest}"
    yield f'{first}""{rest}'
    yield f"{first}\\{rest}"
    yield f"'{first}'\"{rest}\""
    yield f"{first}$''{rest}"
    yield f"{first}${{x}}{rest}"
    yield f"{first}\\\n{rest}"
    yield f"{first}$(){rest}"
    yield f"{first}`true`{rest}"
    yield f'"{first}"{rest}'
    yield "\\".join(["", *word])
    yield "$'" + "".join(f"\\x{ord(each):02x}" for each in word) + "'"
    yield "$'" + "".join(f"\\{ord(each):03o}" for each in word) + "'"
    yield "$'" + "".join(f"\\u{ord(each):04x}" for each in word) + "'"
    yield f"$(echo {first} {rest} | tr -d ' ')"
    yield f"$(echo {word[::-1]} | rev)"


def disguises(words: Sequence[str]) -> list[str]:
    """Return lines that run this command: a program, its first argument, and the rest."""
    values = {"deed": " ".join(words), "0": words[0], "1": words[1], "rest": " ".join(words[2:]), "quoted": ""}
    found = [_fill(context, values).replace("␤", "\n") for context in CONTEXTS.split("\n")]
    for place in (0, 1):
        for word in disguised_words(words[place]):
            deed = " ".join([*words[:place], word, *words[place + 1 :]])
            values = {"deed": deed, "quoted": deed.replace("'", "'\\''")}
            for form in (
                "{deed}",
                "env {deed}",
                "timeout --signal KILL 5 {deed}",
                "bash -c '{quoted}'",
                "true | {deed}",
            ):
                found.append(_fill(form, values))
    return list(dict.fromkeys(found))


def _fill(form: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        form = form.replace(f"{{{name}}}", value)
    return form

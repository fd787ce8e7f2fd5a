 (
set +Ceux
umask 077
unset -f printf 2>/dev/null
oac_stop() { printf 'node-install: %s\n' "$1" >&2; exit "${2:-1}"; }
[ "$(command uname -s) $(command uname -m)" = 'Linux x86_64' ] || oac_stop 'nodes run on Linux on x86_64 only; nothing was changed'
[ "$(command -v printf)" = printf ] || oac_stop 'this shell has no printf of its own: use bash, dash or zsh; nothing was changed'
for oac_tool in curl sha256sum flock; do
  command -v "$oac_tool" >/dev/null 2>&1 || oac_stop "$oac_tool is not installed; nothing was changed"
done
oac_uid=$(command id -u) || exit 1
[ "$oac_uid" = 0 ] || command -v sudo >/dev/null 2>&1 || oac_stop 'sudo is not installed: use a shell of root; nothing was changed'
case "${HOME:-}" in /*) ;; *) oac_stop 'HOME is no absolute path; nothing was changed' ;; esac
[ ! -L "$HOME/.oac" ] || oac_stop "$HOME/.oac is a link: move it away; nothing was changed"
if [ -e "$HOME/.oac" ]; then
  case "$(command stat -c '%u %A' -- "$HOME/.oac")" in
    "$oac_uid d"????-??-?) ;;
    *) oac_stop "$HOME/.oac must be a folder of yours that nobody else may write to; nothing was changed" ;;
  esac
fi
oac_dir=$HOME/.oac/node-bootstrap
command mkdir -p -- "$oac_dir" || exit 1
case "$(command stat -c '%u %f' -- "$oac_dir")" in
  "$oac_uid 41c0" | "$oac_uid 45c0") ;;
  *) oac_stop "$oac_dir must be a folder of yours, no link, with mode 0700; nothing was downloaded" ;;
esac
oac_part=$oac_dir/download.partial
oac_installer=$oac_dir/node-install-@SHA256@
for oac_file in "$oac_dir/download.lock" "$oac_part" "$oac_installer"; do
  [ -e "$oac_file" ] || [ -L "$oac_file" ] || continue
  case "$(command stat -c '%u %f' -- "$oac_file")" in
    "$oac_uid 8"???) ;;
    *) oac_stop "$oac_file is no plain file of yours: move it away; nothing was downloaded" ;;
  esac
done
exec 9<>"$oac_dir/download.lock" || exit 1
command flock -n 9 || oac_stop 'another download is under way: wait for its end; nothing was downloaded'
command rm -f -- "$oac_part" || exit 1
trap 'command rm -f -- "$oac_part"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
unset ALL_PROXY all_proxy
@PROXIES@
oac_answer=$(trap '' XFSZ; ulimit -f 2048; command curl --disable --silent --show-error --fail --globoff --connect-timeout 15 --max-time 60 --retry 2 --max-filesize @MAX@ --output "$oac_part" --write-out '%{http_code}' --url @URL@)
oac_curl=$?
[ "$oac_curl" = 0 ] || oac_stop "the download failed with curl's status $oac_curl; nothing was installed" "$oac_curl"
[ "$oac_answer" = 200 ] || oac_stop "the server answered $oac_answer, and no redirect is followed; nothing was installed"
[ "$(command stat -c %s -- "$oac_part")" -le @MAX@ ] || oac_stop 'the download is larger than @MAX@ bytes; nothing was installed'
oac_sum=$(command sha256sum <"$oac_part")
[ "${oac_sum%% *}" = @SHA256@ ] || oac_stop 'the checksum is another one: the installer was replaced, or somebody changed it on the way; make a new command; nothing was installed'
command chmod 700 -- "$oac_part" && command mv -f -- "$oac_part" "$oac_installer" || exit 1
trap - EXIT HUP INT TERM
exec 9>&-
set -- "$oac_installer" @ARGUMENTS@
[ -z "${NO_COLOR:-}" ] || set -- "$@" --no-color
[ "$oac_uid" = 0 ] || set -- sudo --preserve-env=@NAMES@ -- "$@"
@RUN@
)

world=${MSB_HOME%/.oac/m/*}/world
[ -d "$MSB_HOME" ] && [ ! -e "$world/fails-engine" ] || exit 1
machine=amd64; [ -e "$world/images/wrong" ] && machine=arm64
entry() {
    digest=${1##*@}
    case $1 in *@*) ;; *) IFS= read -r digest < "$world/images/$1" || digest=none ;; esac
    printf '{"architecture":"%s","digest":"%s","layer_count":1,"os":"linux","reference":"%s"}' $machine "$digest" "$1"
}
case "$1 $2" in
"image list")
    printf '['; comma=
    for image in "$world"/images/*; do
        image=${image##*/}
        case $image in wrong | '*') continue ;; esac
        printf '%s' "$comma"; entry "$image"; comma=,
    done
    printf ']\n' ;;
"image inspect") [ -e "$world/images/$3" ] || exit 1; entry "$3" ;;
"image load")
    IFS= read -r archive < "$4"
    [ "$archive" = archive ] || exit 1
    printf '%s\n' "${6##*@}" > "$world/images/oac-runtime:${6##*:}"
    : > "$world/images/$6" ;;
"image remove") [ ! -e "$world/fails-in-use" ] && rm "$world/images/$3" ;;
"sandbox list") if [ -e "$world/fails-sandboxes" ]; then echo '[{"name":"oac-1-g0"}]'; else echo '[]'; fi ;;
*) exit 2 ;;
esac

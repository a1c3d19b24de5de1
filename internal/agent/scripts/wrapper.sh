# Runs one rank: wrapper.sh <folder> <bash, or sh where there is none> <prologue>.
#
# It notes down its number and the exit code in files, so that an agent that was
# restarted meanwhile knows both. Creating "pid" is what starts the rank: only
# one process can, so nothing runs twice. "exit" already has its size; to fill
# it needs no disk space.
trap : HUP INT TERM # the code is noted even if the script ends its own group
set -C
{ echo $$ >"$1/pid"; } 2>/dev/null || exit 75
set +C
exec 3>&2 2>/dev/null # this shell has nothing to say about how the other one ended
(BASH_ENV=$3 exec "$2" "$1/script" 2>&3 3>&-)
code=$?
echo $code 1<>"$1/exit"
exit $code

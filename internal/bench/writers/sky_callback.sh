# Writes what a task does, step by step, for `sky bench show`. For sh and bash:
#
#   . "$SKY_CALLBACK"
#   sky_callback_init 100 1      # steps in all ("" if not known), and steps that are no measure
#   for i in $(seq 100); do
#       train_one_step
#       sky_callback_step        # one step has ended
#   done
#
# Only the node with rank 0 writes.

sky_callback_now() { # milliseconds since 1970
    case $(date +%N 2>/dev/null) in
    *[!0-9]* | '') echo "$(date +%s)000" ;;
    *) echo $(($(date +%s%N) / 1000000)) ;;
    esac
}

sky_callback_seconds() { # milliseconds as seconds with a decimal point; none is null
    if [ -n "$1" ]; then printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); else printf null; fi
}

sky_callback_init() {
    sky_total=${1:-} sky_warmup=${2:-1} sky_steps=0 sky_first='' sky_warm='' sky_last=''
    sky_create=$(sky_callback_now)
    sky_boot=$(sed -n 's/^btime //p' /proc/stat 2>/dev/null)
    sky_dir=${SKY_CALLBACK_DIR:-$HOME/sky_benchmark_dir}/sky-callback-$(date -u +%Y-%m-%d-%H-%M-%S)-$$
    [ "$sky_warmup" -gt 0 ] || sky_warm=$sky_create
    [ "${SKYPILOT_NODE_RANK:-0}" != 0 ] || { mkdir -p "$sky_dir" && sky_callback_write; }
}

sky_callback_step() {
    [ "${SKYPILOT_NODE_RANK:-0}" = 0 ] || return 0
    sky_last=$(sky_callback_now) sky_steps=$((sky_steps + 1))
    [ -n "$sky_first" ] || sky_first=$sky_last
    [ "$sky_steps" != "$sky_warmup" ] || sky_warm=$sky_last
    sky_callback_write
}

sky_callback_write() { # in one go, so that nobody reads a half
    sky_each='' sky_all=''
    if [ "$sky_steps" -gt "$sky_warmup" ]; then
        sky_each=$(((sky_last - sky_warm) / (sky_steps - sky_warmup)))
        [ -z "$sky_total" ] || sky_all=$((sky_warm - sky_create + (sky_last - sky_warm) * (sky_total - sky_warmup) / (sky_steps - sky_warmup)))
    fi
    cat >"$sky_dir/summary.json.new" <<SKY_SUMMARY && mv "$sky_dir/summary.json.new" "$sky_dir/summary.json"
{"boot_time": ${sky_boot:-0}, "create_time": $(sky_callback_seconds "$sky_create"), "warmup_steps": $sky_warmup, "total_steps": ${sky_total:-null},
 "num_steps": $sky_steps, "first_step_time": $(sky_callback_seconds "$sky_first"), "warmup_end_time": $(sky_callback_seconds "$sky_warm"),
 "last_step_time": $(sky_callback_seconds "$sky_last"), "time_per_step": $(sky_callback_seconds "$sky_each"), "estimated_total_time": $(sky_callback_seconds "$sky_all")}
SKY_SUMMARY
}

package machine

import (
	"fmt"
	"strings"
)

// programs are the scripts that a machine has before those of its host.
func programs(spec Spec) map[string]string {
	off := `#!/bin/sh
# Switches this machine off.
kill -TERM "$(sed 's/.*"pid":\([0-9]*\).*/\1/' "${0%/bin/*}/sshd.json")"
`
	return map[string]string{
		"nvidia-smi": nvidiaSMI(strings.TrimPrefix(spec.ID, "fc-"), spec.Accelerators),
		"poweroff":   off, "shutdown": off, "halt": off,
		// The login user is as mighty as anybody here.
		"sudo": "#!/bin/sh\nwhile :; do case $1 in -u|-g) shift 2 ;; -*) shift ;; *=*) export \"$1\"; shift ;; *) break ;; esac; done\nexec \"$@\"\n",
	}
}

// drivers is how NVIDIA's driver calls an accelerator, and its memory in MiB.
var drivers = map[string]struct {
	name string
	mib  int
}{
	"T4":        {"Tesla T4", 15360},
	"L4":        {"NVIDIA L4", 23034},
	"A10G":      {"NVIDIA A10G", 23028},
	"A100":      {"NVIDIA A100-SXM4-40GB", 40960},
	"A100-80GB": {"NVIDIA A100-SXM4-80GB", 81920},
	"H100":      {"NVIDIA H100 80GB HBM3", 81559},
	"H200":      {"NVIDIA H200", 143771},
}

// nvidiaSMI is a script that answers what people ask nvidia-smi. A machine
// without GPUs has one that says so, lest those of the host be seen.
func nvidiaSMI(id string, accelerators map[string]float64) string {
	for acc, n := range accelerators {
		d, ok := drivers[acc]
		if !ok {
			d.name, d.mib = "NVIDIA "+acc, 16384
		}
		return strings.NewReplacer("@ID@", id, "@NAME@", d.name, "@COUNT@", fmt.Sprint(int(n)), "@MIB@", fmt.Sprint(d.mib)).Replace(gpus)
	}
	return "#!/bin/sh\necho \"NVIDIA-SMI has failed because this machine has no GPU.\"\nexit 9\n"
}

const gpus = `#!/bin/sh
# nvidia-smi of a simulated machine.
name='@NAME@' count=@COUNT@ mib=@MIB@ driver=560.35.03
query= header=1 units=1 only=
while [ $# -gt 0 ]; do
  case $1 in
    --query-gpu=*) query=${1#*=} ;;
    --query-compute-apps=*) exit 0 ;;
    --format=*)
      case ,${1#*=}, in *,noheader,*) header=0 ;; esac
      case ,${1#*=}, in *,nounits,*) units=0 ;; esac ;;
    -i|--id) only=$2; shift ;;
    -i=*|--id=*) only=${1#*=} ;;
    -L|--list-gpus) query=list ;;
  esac
  shift
done
field() {
  unit=
  case $1 in
    index) v=$2 ;;
    name|gpu_name) v=$name ;;
    uuid|gpu_uuid) v=$(printf 'GPU-@ID@-0000-4000-8000-%012d' "$2") ;;
    count) v=$count ;;
    driver_version) v=$driver ;;
    memory.total) v=$mib unit=' MiB' ;;
    memory.used) v=0 unit=' MiB' ;;
    memory.free) v=$mib unit=' MiB' ;;
    utilization.gpu|utilization.memory) v=0 unit=' %' ;;
    temperature.gpu) v=30 ;;
    *) echo "Field \"$1\" is not a valid field to query." >&2; exit 2 ;;
  esac
  [ $units = 1 ] || unit=
  printf '%s%s' "$v" "$unit"
}
if [ -n "$query" ] && [ "$query" != list ] && [ $header = 1 ]; then
  echo "$query" | sed 's/,/, /g'
fi
[ -n "$query" ] || echo "NVIDIA-SMI $driver    Driver Version: $driver    CUDA Version: 12.6"
i=0
while [ $i -lt $count ]; do
  if [ -z "$only" ] || [ "$only" = $i ]; then
    case $query in
      list) echo "GPU $i: $name (UUID: $(field uuid $i))" ;;
      '') printf '|  %2d  %-28s |      0MiB / %6dMiB |      0%%  |\n' $i "$name" $mib ;;
      *)
        line= rest=$query,
        while [ -n "$rest" ]; do
          one=${rest%%,*} rest=${rest#*,}
          v=$(field "$one" $i) || exit 2
          line="$line${line:+, }$v"
        done
        echo "$line" ;;
    esac
  fi
  i=$((i + 1))
done
`

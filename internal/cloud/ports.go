package cloud

import (
	"fmt"
	"strconv"
	"strings"
)

// PortRange reads ports as tasks write them: "8080" or "8000-8010".
func PortRange(ports string) (from, to int, err error) {
	a, b, ranged := strings.Cut(ports, "-")
	if !ranged {
		b = a
	}
	first, err1 := strconv.ParseUint(a, 10, 16)
	last, err2 := strconv.ParseUint(b, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || first > last {
		return 0, 0, fmt.Errorf("%q is neither a port nor a range of ports such as 8000-8010", ports)
	}
	return int(first), int(last), nil
}

// EachPort are the single ports of ports and ranges, in their order.
func EachPort(ports []string) (all []int, err error) {
	for _, p := range ports {
		from, to, err := PortRange(p)
		if err != nil {
			return nil, err
		}
		for port := from; port <= to; port++ {
			all = append(all, port)
		}
	}
	return all, nil
}

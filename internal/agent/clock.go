package agent

import "time"

// seconds is t as the protocol counts it.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

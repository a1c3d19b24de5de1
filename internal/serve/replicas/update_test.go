package replicas

import "testing"

// A version is needed as long as it may have to come back, or has replicas.
func TestWhichVersionsAreNeeded(t *testing.T) {
	rows := []Replica{{Version: 2}, {Version: 4}}
	for _, c := range []struct {
		stable, version int
		want            bool
	}{
		{0, 1, true},                                                           // none was ever ready
		{4, 1, false}, {4, 2, true}, {4, 3, false}, {4, 4, true}, {4, 5, true}, // 5 was rolled back, or has just begun
		{3, 3, true}, // it has lost its last replica for a moment
	} {
		u := Update{Stable: c.stable}
		if got := u.Needed(c.version, rows); got != c.want {
			t.Errorf("version %d, %d has taken over: %v", c.version, c.stable, got)
		}
	}
}

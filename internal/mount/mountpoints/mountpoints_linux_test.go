package mountpoints

import (
	"strings"
	"testing"
)

func TestPointsAreReadAsTheKernelWritesThem(t *testing.T) {
	text := "24 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n" +
		"61 24 0:50 / /home/a\\040b/x rw,nosuid,nodev shared:7 - fuse.sky s3://bucket rw,user_id=0\n" +
		"broken\n"
	got, err := read(strings.NewReader(text))
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if want := (Point{"/home/a b/x", "fuse.sky", "s3://bucket", "rw,user_id=0", "0:50"}); got[1] != want {
		t.Errorf("%+v", got[1])
	}
}

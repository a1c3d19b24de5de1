package cloud

import "testing"

func TestPlacesAreWrittenAsPeopleWriteThem(t *testing.T) {
	for _, tt := range []struct {
		place Place
		want  string
	}{
		{Place{}, ""},
		{Place{Cloud: "local"}, "local"},
		{Place{Cloud: "aws", Region: "us-east-1", Zone: "us-east-1a"}, "aws/us-east-1/us-east-1a"},
		{Place{Cloud: "ssh", Region: "ssh-box"}, "ssh/box"},
		{Place{Cloud: "ssh", Region: "ssh-ssh-box"}, "ssh/ssh-ssh-box"}, // a pool named ssh-box
		{Place{Cloud: "kubernetes", Region: "ssh-box"}, "kubernetes/ssh-box"},
	} {
		if got := tt.place.String(); got != tt.want {
			t.Errorf("%+v is written %q, want %q", tt.place, got, tt.want)
		}
	}
}

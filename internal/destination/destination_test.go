package destination

import "testing"

func TestPath(t *testing.T) {
	for dst, want := range map[string]string{
		"~/x": "/home/ada/x", "x/y": "/home/ada/x/y", "~": "/home/ada", "/data/": "/data", "/a/../b": "/b",
		"~bob/x": "", "../x": "", "~/../x": "",
	} {
		got, err := Path(dst, "/home/ada")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", dst, got, err, want)
		}
	}
}

func TestWhatMakesADestinationWritable(t *testing.T) {
	const data, etc = "/data/model", "/etc/motd.txt"
	ours := "/home/ada/" + linksDir + etc
	for _, c := range []struct {
		name string
		s    state
		act  action
		at   string
	}{
		{"a folder of the user's", state{path: data, folder: true, exists: true, isFolder: true, writable: true, above: "/data"}, asIs, ""},
		{"a folder below one of the user's", state{path: data, folder: true, above: "/data", aboveWritable: true}, asIs, ""},
		{"a file where a folder is wanted", state{path: data, folder: true, exists: true, above: "/data"}, asIs, ""},
		{"a folder below root's", state{path: data, folder: true, above: "/"}, create, data},
		{"root's empty folder, as a crash leaves it", state{path: data, folder: true, exists: true, isFolder: true, empty: true, above: "/data"}, adopt, data},
		{"root's full folder", state{path: "/etc", folder: true, exists: true, isFolder: true, above: "/"}, refuse, ""},
		{"an empty folder of somebody else", state{path: data, folder: true, exists: true, isFolder: true, empty: true, above: "/data", stranger: "/data"}, refuse, ""},
		{"a folder below somebody else's", state{path: data, folder: true, above: "/data", stranger: "/data"}, refuse, ""},
		{"a file in a folder of the user's", state{path: etc, exists: true, above: "/etc", aboveWritable: true}, asIs, ""},
		{"a file below folders that nobody has made", state{path: "/data/new/x", above: "/"}, create, "/data/new"},
		{"a file in a folder of root's", state{path: etc, above: "/etc"}, link, ""},
		{"the link is there", state{path: etc, above: "/etc", exists: true, linked: ours}, link, ""},
		{"the link is there, and the user may write", state{path: etc, above: "/etc", aboveWritable: true, exists: true, linked: ours}, link, ""},
		{"the link of a cluster that is gone", state{path: etc, above: "/etc", linked: "/home/old/" + linksDir + etc}, link, ""},
		{"a file of root's", state{path: etc, above: "/etc", exists: true}, refuse, ""},
		{"another link", state{path: etc, above: "/etc", linked: "/nowhere"}, refuse, ""},
		{"a file in somebody else's folder", state{path: etc, above: "/etc", stranger: "/etc"}, refuse, ""},
		{"a folder where a file is wanted", state{path: etc, exists: true, isFolder: true, above: "/etc"}, asIs, ""},
	} {
		act, at, why := decide(c.s)
		if act != c.act || at != c.at || (why != nil) != (c.act == refuse) {
			t.Errorf("%s: %v %q, %v; want %v %q", c.name, act, at, why, c.act, c.at)
		}
		if why != nil && (why.Path != c.s.path || why.Why == "" || why.Hint == "") {
			t.Errorf("%s: %+v", c.name, why)
		}
	}
}

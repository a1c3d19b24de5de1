package task

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseInfra(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Infra
		text string // written back
	}{
		{"aws", Infra{"aws", "", ""}, "aws"},
		{"AWS/us-east-1", Infra{"aws", "us-east-1", ""}, "aws/us-east-1"},
		{"gcp/us-central1/us-central1-a", Infra{"gcp", "us-central1", "us-central1-a"}, "gcp/us-central1/us-central1-a"},
		{"*/us-east-1", Infra{"", "us-east-1", ""}, "*/us-east-1"},
		{"*", Infra{}, ""},
		{"aws/*/us-east-1a", Infra{"aws", "", "us-east-1a"}, "aws/*/us-east-1a"},
		{"aws/*/*", Infra{"aws", "", ""}, "aws"},
		{"*/*/z", Infra{"", "", "z"}, "*/*/z"},
		{" /aws/ ", Infra{"aws", "", ""}, "aws"},
		{"k8s", Infra{"kubernetes", "", ""}, "kubernetes"},
		{"Kubernetes/my-ctx", Infra{"kubernetes", "my-ctx", ""}, "kubernetes/my-ctx"},
		{"k8s/arn:aws:eks:us-east-1:1:cluster/a", Infra{"kubernetes", "arn:aws:eks:us-east-1:1:cluster/a", ""}, "kubernetes/arn:aws:eks:us-east-1:1:cluster/a"},
		{"k8s/*", Infra{"kubernetes", "", ""}, "kubernetes"},
		{"ssh/rack", Infra{"ssh", "ssh-rack", ""}, "ssh/rack"},
		{"ssh", Infra{"ssh", "", ""}, "ssh"},
		{"slurm/c1/part", Infra{"slurm", "c1", "part"}, "slurm/c1/part"},
		{"digitalocean/nyc1", Infra{"do", "nyc1", ""}, "do/nyc1"},
		{"local", Infra{"local", "", ""}, "local"},
	} {
		got, err := ParseInfra(c.in)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%q: %+v %q %v", c.in, got, got.String(), err)
		}
	}
	for _, bad := range []string{"", " ", "/", "aws//z", "aws/a/b/c", "clowd", "*/a/b/c", "k8s//x"} {
		if got, err := ParseInfra(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func TestCloudNames(t *testing.T) {
	for _, c := range Clouds {
		if CloudDisplay(c) == c || !strings.EqualFold(CloudDisplay(c), c) {
			t.Errorf("%s is shown as %s", c, CloudDisplay(c))
		}
		if got, err := CloudName(strings.ToUpper(c)); got != c || err != nil {
			t.Errorf("%s: %s %v", c, got, err)
		}
	}
	if CloudDisplay("mine") != "mine" {
		t.Error("an unknown cloud lost its name")
	}
}

// table runs "input → output" pairs; an output of "!" is a refusal.
func table(t *testing.T, parse func(string) (string, error), pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		in, want := pairs[i], pairs[i+1]
		got, err := parse(in)
		if want == "!" && err == nil || want != "!" && (err != nil || got != want) {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
		if want == "!" && err != nil && strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: bad message %q", in, err)
		}
	}
}

func number2text[T any](parse func(string) (T, error)) func(string) (string, error) {
	return func(s string) (string, error) { v, err := parse(s); return fmt.Sprint(v), err }
}

func TestParseCPUs(t *testing.T) {
	table(t, ParseCPUs, "8", "8", "8+", "8+", "0.5", "0.5", ".5+", "0.5+", "8.0", "8", "4.", "4", " 8 ", "8", "100000000", "100000000",
		"0", "!", "0.0+", "!", "-1", "!", "8x", "!", "8GB", "!", "", "!", "+", "!", "8 +", "!", "1e3", "!", "inf", "!", "8++", "!", "0x8", "!")
}

func TestParseMemory(t *testing.T) {
	table(t, ParseMemory, "16", "16", "16+", "16+", "4x", "4x", "0.5", "0.5", "16GB", "16", "16gb+", "16+", "16Gi", "16", "1024MB", "1", "1.5TB", "1536",
		"1PB", "1048576", "1048576kb", "1", "512mI", "0.5", "1.5x", "1.5x",
		"16G", "!", "16GiB", "!", "4x+", "!", "4+x", "!", "16GBx", "!", "0", "!", "0GB", "!", "-2", "!", "x", "!", "16 GB", "!", "GB", "!")
}

func TestParseDiskSize(t *testing.T) {
	table(t, number2text(ParseDiskSize), "256", "256", "256GB", "256", "256gb", "256", "256Gb", "256", "1TB", "1024", "2048MB", "2", "1048576KB", "1", "1Ti", "1024",
		"1500MB", "!", "0", "!", "-5", "!", "1.5", "!", "256gB", "!", "256 GB", "!", "256G", "!", "256+", "!", "", "!", "99999999999", "!", "9PB", "9437184")
}

func TestParseVolumeSize(t *testing.T) {
	table(t, number2text(ParseVolumeSize), "100", "100", "1500MB", "1", "2Ti", "2048", "1023MB", "!", "0", "!", "-1", "!", "x", "!")
}

func TestDurations(t *testing.T) {
	table(t, number2text(ParseMinutes), "0", "0", "10", "10", "10m", "10", "2H", "120", "1d", "1440", "1w", "10080", "007", "7",
		"10s", "!", "-1", "!", "1.5h", "!", "", "!", "m", "!", "1h30m", "!", "99999999999w", "!", "1 h", "!")
	table(t, number2text(ParseSeconds), "90", "90", "90s", "90", "5M", "300", "2h", "7200", "1d", "86400", "1w", "604800", "5y", "!", "-5s", "!", "999999999w", "!")
}

func TestParseLocalDisk(t *testing.T) {
	table(t, ParseLocalDisk, "nvme", "nvme:100+", "SSD", "ssd:100+", "375", "nvme:375", "375+", "nvme:375+", "ssd:0.5+", "ssd:0.5+", "nvme:375.0", "nvme:375",
		"", "!", ":", "!", "nvme:", "!", ":5", "!", "hdd:5", "!", "nvme:0", "!", "nvme5", "!", "+", "!", "nvme:+", "!", "nvme:5:5", "!")
}

func TestParsePorts(t *testing.T) {
	table(t, func(s string) (string, error) {
		ports, err := ParsePorts(strings.Fields(s)...)
		return strings.Join(ports, " "), err
	}, "8080", "8080", "8000 8001-8003 8005", "8000-8003 8005", "9,8,7", "7-9", "1-65535", "1-65535", "5-10 1-7", "1-10", "10 10", "10", "1-2 3-4", "1-4", "", "",
		"20 3", "3 20", "0", "!", "65536", "!", "2-1", "!", "a", "!", "1-", "!", "-1", "!", "1-2-3", "!", "1,,2", "!", "+1", "!", "80.0", "!")
}

func TestParseAccelerator(t *testing.T) {
	table(t, func(s string) (string, error) { a, err := ParseAccelerator(s); return a.String(), err },
		"A100", "A100:1", "A100:8", "A100:8", "A100:8.0", "A100:8", "A100:0.5", "A100:0.5", "tpu-v3-8", "tpu-v3-8:1", "A100-80GB:2", "A100-80GB:2", " A100:1 ", "A100:1",
		"80GB", "80GB:1", "80GB+", "80GB+:1", "80GB:4", "80GB:4", "80gb+:4", "80gb+:4", "nvidia:80GB", "nvidia:80GB:1", "nvidia:80GB+:4", "nvidia:80GB+:4",
		"", "!", ":", "!", "A100:", "!", "A100:0", "!", "A100:-1", "!", "A100:x", "!", "A100:8:2", "!", "A100:1:2:3", "!", "Radeon Pro V520:4", "Radeon Pro V520:4", "Virtex UltraScale (VU9P)", "Virtex UltraScale (VU9P):1", "a\tb", "!", "{A100}", "!", "A100,V100", "!", "A100:1e3", "!", ":80GB", "!")
	for in, want := range map[string]DeviceMemory{
		"80GB":          {"", 80, false},
		"80gb+:4":       {"", 80, true},
		"NVIDIA:1TB+":   {"nvidia", 1024, true},
		"amd:512MB:0.5": {"amd", 0.5, false},
	} {
		a, err := ParseAccelerator(in)
		if got, ok := a.Memory(); err != nil || !ok || got != want {
			t.Errorf("%s: %+v %v %v", in, got, ok, err)
		}
	}
	if _, ok := (Accelerator{Name: "A100-80GB"}).Memory(); ok {
		t.Error("A100-80GB is a name")
	}
}

func TestParseGitURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://github.com/a/b.git":        "https://github.com/a/b",
		"https://github.com/a/b/":           "https://github.com/a/b",
		"http://me@h:8080/a":                "http://me@h:8080/a",
		"ssh://git@h:22/a/b.git/":           "ssh://git@h:22/a/b",
		"git@github.com:a/b.git":            "git@github.com:a/b",
		"h:a":                               "h:a",
		"https://github.com":                "!",
		"ftp://h/a":                         "!",
		"./a":                               "!",
		"":                                  "!",
		"https://h/a b":                     "!",
		"file:///etc":                       "!",
		"git@github.com:a/b;rm -rf /":       "!",
		"https://user:pass@github.com/a/b/": "https://user:pass@github.com/a/b",
	} {
		got, ok := ParseGitURL(in)
		if ok == (want == "!") || ok && got != want {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
}

func TestParseEnvFile(t *testing.T) {
	lookup := func(name string) (string, bool) { return "from-" + name, name == "HOME" || name == "LOCAL" }
	got, err := ParseEnvFile(".env", []byte("\ufeff# comment\n\nA=1\n  B = two words  # note\nexport C='raw ${A} \\n $x'\nD=\"q\\\"\\n\\t${A}\" # note\r\nE=\nF=a#b\nLOCAL\nG=${HOME}/x:${NONE:-def}:${NONE}\nH='two\nlines'\nI=\"a\n# b\nc\"\nJ=x=y\nA2=${A}2\nK=# none\nL='it\\'s'\n'M N'=1\nA=9"), lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"A": "9", "B": "two words", "C": `raw ${A} \n $x`, "D": "q\"\n\t1", "E": "", "F": "a#b", "LOCAL": "from-LOCAL", "G": "from-HOME/x:def:",
		"H": "two\nlines", "I": "a\n# b\nc", "J": "x=y", "A2": "12", "K": "", "L": "it's", "M N": "1",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("read %q", got)
	}
	for in, want := range map[string]string{
		"A=1\n=2":        ".env:2:1: this line should be KEY=VALUE",
		"MISSING":        ".env:1:1: MISSING has no value here",
		"A=1\nB='x\ny":   ".env:2:3: the value of B begins with a quote that is never closed",
		"A=\"x\" y":      ".env:1:1: there is more text after the closing quote of A",
		"A B=1":          ".env:1:3: expected = after A",
		"export":         ".env:1:1: export needs KEY=VALUE",
		"\"A\"=1":        "this line should be KEY=VALUE",
		"A=\xff":         ".env: not a UTF-8 text file",
		"  \n  oops x\n": ".env:2:8: expected = after oops",
	} {
		if _, err := ParseEnvFile(".env", []byte(in), lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

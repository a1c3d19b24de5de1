package task

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestClusterNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "my-cluster": true, "A.b_c-9": true, "a1": true,
		"": false, "1a": false, "-a": false, "a-": false, "a.": false, "a b": false, "ü": false, "a\n": false, "a/b": false,
	} {
		if err := ValidClusterName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if !strings.Contains(ValidClusterName("1a").Error(), `"1a" cannot name a cluster`) {
		t.Error(ValidClusterName("1a"))
	}
}

func TestOtherNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		err error
		ok  bool
	}{
		{ValidTaskName("a__b.c"), true}, {ValidTaskName("a___b"), false}, {ValidTaskName("9"), true},
		{ValidWorkspaceName("team-a"), true}, {ValidWorkspaceName("Team"), false}, {ValidWorkspaceName(long), false},
		{ValidRecipeName("My-recipe"), true}, {ValidRecipeName("my_recipe"), false}, {ValidRecipeName(long), false},
		{ValidVolumeName("a.b-c", "k8s-pvc"), true}, {ValidVolumeName("A", "k8s-pvc"), false},
		{ValidVolumeName("A", "runpod-network-volume"), true}, {ValidVolumeName(long, "runpod-network-volume"), false},
	} {
		if (c.err == nil) != c.ok {
			t.Errorf("%v, want ok %v", c.err, c.ok)
		}
	}
}

func TestCleanUser(t *testing.T) {
	for in, want := range map[string]string{
		"ann": "ann", "Ann.Lee": "annlee", "9-9bob-": "bob", "a b@c": "abc", "Ünal": "nal", "": "user", "123": "user", "x_y-z": "x_y-z",
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		if got := CleanUser(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The expected names were computed with Python's hashlib and base 36.
func TestNameOnCloud(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
		want  string
	}{
		{"my.Cluster_1", 0, "my-cluster-1-abcd1234"},
		{"a-very-long-cluster-name-for-gcp", 35, "a-very-long-cluster-nam-c3-abcd1234"},
		{"sky-jobs-controller-abcd1234", 42, "sky-jobs-controller-abcd1234-abcd1234"},
		{"aaaaaaaaaaaaaaaaaaaaaaa-b-cccccccccccc", 35, "aaaaaaaaaaaaaaaaaaaaaaa-7i-abcd1234"},
	} {
		if got := NameOnCloud(c.name, "abcd1234", c.limit); got != c.want {
			t.Errorf("%s within %d: %s, want %s", c.name, c.limit, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z][-_.a-zA-Z0-9]{0,80}[a-zA-Z0-9]`).Draw(t, "name")
		limit := rapid.IntRange(28, 60).Draw(t, "limit")
		got := NameOnCloud(name, "abcd1234", limit)
		if len(got) > limit || !regexp.MustCompile(`^[a-z][a-z0-9-]*-abcd1234$`).MatchString(got) {
			t.Fatalf("%s", got)
		}
	})
}

func TestGeneratedNamesAreNamesOfClusters(t *testing.T) {
	for _, name := range []string{GeneratedClusterName("Ann Lee"), GeneratedClusterName(""), GeneratedClusterName("_"), GeneratedServiceName(), GeneratedPoolName()} {
		if err := ValidClusterName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestUserHashIsKept(t *testing.T) {
	t.Setenv("SKYPILOT_USER_ID", "")
	home := t.TempDir()
	first, err := UserHash(home)
	if err != nil || !userID.MatchString(first) {
		t.Fatalf("%q %v", first, err)
	}
	file := filepath.Join(home, ".sky", "user_hash")
	if err := os.WriteFile(file, []byte("0123abcd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := UserHash(home); got != "0123abcd" || err != nil {
		t.Errorf("the file was not read: %q %v", got, err)
	}
	t.Setenv("SKYPILOT_USER_ID", "fcd1e5cf")
	if got, err := UserHash(home); got != "fcd1e5cf" || err != nil {
		t.Errorf("the variable was not read: %q %v", got, err)
	}
}

package task

import (
	"crypto/sha256"
	"encoding/hex"
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

// @ is the digest of the name and the user.
func TestNameOnCloud(t *testing.T) {
	for _, c := range []struct {
		name, user string
		limit      int
		want       string
	}{
		{"my-cluster", "abcd1234", 0, "my-cluster-abcd1234"},
		{"my-cluster", "sa-0123456789abcdef", 42, "my-cluster-sa-0123456789abcdef"},
		{"sky-jobs-controller-abcd1234", "abcd1234", 42, "sky-jobs-controller-abcd1234-abcd1234"},
		{"my.Cluster_1", "abcd1234", 0, "my-cluster-1-x@-abcd1234"},
		{"a-very-long-cluster-name-for-gcp", "abcd1234", 35, "a-very-long-cl-x@-abcd1234"},
		{"aaaaaaaaaaaaa-b-cccccccccccccccccccc", "abcd1234", 35, "aaaaaaaaaaaaa-x@-abcd1234"},
		{"train-x0123456789", "abcd1234", 0, "train-x0123456789-x@-abcd1234"},
	} {
		sum := sha256.Sum256([]byte(c.name + "\x00" + c.user))
		want := strings.Replace(c.want, "@", hex.EncodeToString(sum[:5]), 1)
		if got := NameOnCloud(c.name, c.user, c.limit); got != want {
			t.Errorf("%s within %d: %s, want %s", c.name, c.limit, got, want)
		}
	}
	if got := NameOnCloud("c", "Ann@Example", 42); !regexp.MustCompile(`^c-x[0-9a-f]{10}-[0-9a-f]{10}$`).MatchString(got) {
		t.Errorf("a user's id that is no part of a name: %s", got)
	}
}

// similarName draws names that often differ only in what names on clouds do not
// have, or behind what they have room for.
func similarName(t *rapid.T, label string) string {
	long := rapid.SampledFrom([]string{"", "", strings.Repeat("n", 30), strings.Repeat("n", 250)}).Draw(t, label+" begins")
	return "t" + long + rapid.StringMatching(`([-_.A-Ba-b1-2]{0,4}(-x[0-9a-b]{10})?[a-bA-B1-2])?`).Draw(t, label)
}

// The shortest limit is as long as a provider's may be.
func TestDifferentClustersHaveDifferentNamesOnClouds(t *testing.T) {
	users := []string{"abcd1234", "12", "a-12", "b-a-12", "Ann", "ann", "sa-0123456789abcdef", "sa-0123456789abcdee", "0123456789abcdef", strings.Repeat("u", 60)}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{0, 36, 42, 57, 120, 200, 240}).Draw(t, "limit")
		seen := map[string][2]string{}
		for range 30 {
			c := [2]string{similarName(t, "name"), rapid.SampledFrom(users).Draw(t, "user")}
			if err := ValidClusterName(c[0]); err != nil {
				t.Fatal(err)
			}
			got := NameOnCloud(c[0], c[1], limit)
			if limit > 0 && len(got) > limit || !regexp.MustCompile(`^[a-z][a-z0-9-]*[a-z0-9]$`).MatchString(got) {
				t.Fatalf("%v within %d: %s", c, limit, got)
			}
			if other, ok := seen[got]; ok && other != c {
				t.Fatalf("%v and %v are both %s", c, other, got)
			}
			seen[got] = c
		}
	})
}

func TestFilesOfClustersDifferWithoutCase(t *testing.T) {
	a, b := FileName(strings.Repeat("a", 300)), FileName(strings.Repeat("a", 301))
	if len(a) > longestFile || len(b) > longestFile || a == b {
		t.Errorf("long names: %q, %q", a, b)
	}
	if got := FileName("my-cluster_1"); got != "my-cluster_1" {
		t.Errorf("a name in lower case became %s", got)
	}
	seen := map[string]string{}
	for _, name := range []string{"my-cluster", "My-Cluster", "my-Cluster", "MY-CLUSTER"} {
		file := strings.ToLower(FileName(name))
		if other := seen[file]; other != "" {
			t.Errorf("%s and %s are both %s", name, other, file)
		}
		seen[file] = name
	}
}

func TestGeneratedNamesAreNamesOfClusters(t *testing.T) {
	for _, name := range []string{GeneratedClusterName("Ann Lee"), GeneratedClusterName(""), GeneratedClusterName("_"), GeneratedServiceName(), GeneratedPoolName()} {
		if err := ValidClusterName(name); err != nil {
			t.Error(err)
		}
	}
}

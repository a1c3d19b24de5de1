package task

import (
	"maps"
	"strings"
	"testing"
)

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"HF_TOKEN": true, "WANDB_API_KEY": true, "AWS_SECRET_ACCESS_KEY": true, "DB_PASSWORD": true, "CLIENT_SECRET": true, "MY_CREDENTIALS": true,
		"token": true, "apiKey": true, "SKYPILOT_DOCKER_PASSWORD": true,
		"EPOCHS": false, "MAX_TOKENS": false, "KEYBOARD": false, "KEY": false, "SECRET_SANTA": false, "TOKEN_FILE": false, "SKYPILOT_DOCKER_USERNAME": false,
	} {
		if SecretName(name) != want {
			t.Errorf("%s: %t, want %t", name, !want, want)
		}
	}
}

const withToken = `name: t
workdir:
  url: https://x:${HF_TOKEN}@git.example.com/r
envs:
  EPOCHS: 10
  HF_TOKEN: hf-0123456789
  Client_Secret: 'sesame-98765'
secrets:
  OTHER: other-4444444
run: echo $HF_TOKEN
`

// Whatever shows or keeps a task for people does so without the values.
func TestVariablesThatLookLikeSecretsAreHidden(t *testing.T) {
	d, err := Parse("task.yaml", []byte(withToken))
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := d.Override(Overrides{})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "Client_Secret, HF_TOKEN under envs") || !strings.Contains(warnings[0], "secrets:") {
		t.Errorf("warnings: %q, %v", warnings, err)
	}
	sent, err := d.YAML()
	if err != nil || !strings.Contains(string(sent), "hf-0123456789") {
		t.Fatalf("the task that travels lost its values: %v\n%s", err, sent)
	}
	shown, err := d.DisplayYAML()
	if err != nil {
		t.Fatal(err)
	}
	ended, err := WithoutSecrets(sent)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"display": string(shown), "record of what has ended": string(ended), "text as written": d.Tasks[0].origin.display(), "text of another client": displayed(withToken),
		"error": d.Tasks[0].ErrorAt("envs.HF_TOKEN", "the value hf-0123456789 is wrong").Error(),
	} {
		for _, value := range []string{"hf-0123456789", "sesame-98765", "other-4444444"} {
			if strings.Contains(text, value) {
				t.Errorf("the %s has %s:\n%s", what, value, text)
			}
		}
		if what != "error" && !strings.Contains(text, "EPOCHS: 10") && !strings.Contains(text, "EPOCHS: '10'") && !strings.Contains(text, `EPOCHS: "10"`) {
			t.Errorf("the %s lacks what may be seen:\n%s", what, text)
		}
	}
	if got := strings.Join(SecretsIn(sent), " "); !strings.Contains(got, "hf-0123456789") || !strings.Contains(got, "sesame-98765") || strings.Contains(got, "10 ") {
		t.Errorf("secrets are %s", got)
	}
	envs, secrets := d.Tasks[0].Variables()
	if !maps.Equal(envs, map[string]string{"EPOCHS": "10"}) || !maps.Equal(secrets, map[string]string{"HF_TOKEN": "hf-0123456789", "Client_Secret": "sesame-98765", "OTHER": "other-4444444"}) {
		t.Errorf("the job gets %v and the secrets %v", envs, secrets)
	}
}

func TestALoginOfARegistryIsNoReasonToWarn(t *testing.T) {
	d, err := Parse("task.yaml", []byte("envs: {SKYPILOT_DOCKER_USERNAME: u, SKYPILOT_DOCKER_PASSWORD: p, SKYPILOT_DOCKER_SERVER: s, EMPTY_TOKEN: ''}\nrun: echo\n"))
	if err != nil {
		t.Fatal(err)
	}
	if warnings, err := d.Override(Overrides{}); err != nil || len(warnings) > 0 {
		t.Errorf("%q, %v", warnings, err)
	}
}

package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The callbacks for frameworks count the steps of trainers, and know how many there will be.
func TestCallbacksOfFrameworks(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	frameworks, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, program string) (Reading, string, error) {
		home := t.TempDir()
		script := "python3 - <<'E'\nimport pickle, sys, sky_callback\nfrom frameworks import *\n" + program + "\nE\n"
		if err := os.WriteFile(filepath.Join(home, "script"), []byte(Wrap(script)), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "sh", "script")
		c.Dir, c.Env = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + frameworks, "PYTHONDONTWRITEBYTECODE=1"}
		out, failed := c.CombinedOutput()
		c = exec.CommandContext(t.Context(), "sh", "-c", ReadCommand)
		c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		read, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return ParseReading(string(read)), string(out), failed
	}
	const unknown, none = -1, -2
	for _, tt := range []struct {
		name, program string
		steps, total  int
	}{
		{"Keras", "keras()\nfit(sky_callback.SkyKerasCallback(), 3, 4)", 12, 12},
		{"Keras of TensorFlow", "keras('tensorflow'); sys.modules['keras'] = None\nfit(sky_callback.SkyKerasCallback(), 1, 4)", 4, 4},
		{"Keras, going on", "keras()\nfit(sky_callback.SkyKerasCallback(), 3, 4, initial_epoch=1)", 8, 8},
		{"Keras, steps unknown", "keras()\nfit(sky_callback.SkyKerasCallback(), 2, 4, known=False)", 8, unknown},
		{"Keras, steps given", "keras()\nfit(sky_callback.SkyKerasCallback(total_steps=100), 2, 4, known=False)", 8, 100},
		{"Keras, the last training counts", "keras()\nc = sky_callback.SkyKerasCallback()\nfit(c, 1, 9)\nfit(c, 2, 4)", 8, 8},
		{"Keras, not the chief", "keras()\nfit(sky_callback.SkyKerasCallback(), 2, 4, model=types.SimpleNamespace(distribute_strategy=types.SimpleNamespace(extended=types.SimpleNamespace(_in_multi_worker_mode=lambda: True, should_checkpoint=False))))", none, none},
		{"Keras, the chief", "keras()\nfit(sky_callback.SkyKerasCallback(), 2, 4, model=types.SimpleNamespace(distribute_strategy=types.SimpleNamespace(extended=types.SimpleNamespace(_in_multi_worker_mode=lambda: True, should_checkpoint=True))))", 8, 8},

		{"Lightning", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3), 5)", 5, 30},
		{"Lightning by its other name", "lightning('pytorch_lightning')\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3), 5)", 5, 30},
		{"Lightning by both names", "lightning('pytorch_lightning', 'lightning.pytorch')\nc = sky_callback.SkyLightningCallback()\n" +
			"assert isinstance(c, sys.modules['pytorch_lightning'].Callback) and isinstance(c, sys.modules['lightning.pytorch'].Callback)\ntrain(c, trainer(max_epochs=1), 5)", 5, 10},
		{"Lightning, steps bound", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3, max_steps=7), 5)", 5, 7},
		{"Lightning, only steps", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=-1, max_steps=25), 5)", 5, 25},
		{"Lightning, several batches a step", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_steps=7, each=4), 5)", 5, 24},
		{"Lightning, batches without an end", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3, batches=float('inf')), 5)", 5, unknown},
		{"Lightning, batches without an end and steps", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3, max_steps=6, each=2, batches=float('inf')), 5)", 5, 12},
		{"Lightning without an end", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=-1), 5)", 5, unknown},
		{"Lightning, going on", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3, current_epoch=2, global_step=20, max_steps=28), 5)", 5, 8},
		{"Lightning, another rank", "lightning()\ntrain(sky_callback.SkyLightningCallback(), trainer(max_epochs=3, global_rank=1), 5)", none, none},
		{"Lightning in other processes", "lightning()\ntrain(pickle.loads(pickle.dumps(sky_callback.SkyLightningCallback())), trainer(max_epochs=3), 5)", 5, 30},

		{"Transformers", "transformers()\nhugging(sky_callback.SkyTransformersCallback(), 20, 5)", 5, 20},
		{"Transformers, going on", "transformers()\nhugging(sky_callback.SkyTransformersCallback(), 20, 5, global_step=12)", 5, 8},
		{"Transformers, another rank", "transformers()\nhugging(sky_callback.SkyTransformersCallback(), 20, 5, zero=False)", none, none},
		{"Transformers, its class", "transformers()\nfrom sky_callback import SkyTransformersCallback\nassert SkyTransformersCallback is sky_callback.SkyTransformersCallback\nhugging(SkyTransformersCallback(total_steps=0), 20, 1)", 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, out, err := run(t, tt.program)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			steps, total := none, none
			if s := r.Summary; s != nil {
				steps, total = s.NumSteps, unknown
				if s.TotalSteps != nil {
					total = *s.TotalSteps
				}
				if steps > 1 && s.TimePerStep == nil {
					t.Errorf("no time of a step: %+v", s)
				}
			}
			if steps != tt.steps || total != tt.total {
				t.Errorf("%d steps of %d, want %d of %d\n%s", steps, total, tt.steps, tt.total, out)
			}
		})
	}
	if _, out, err := run(t, "sys.modules['keras'] = sys.modules['tensorflow'] = None\nsky_callback.SkyKerasCallback"); err == nil || !strings.Contains(out, "Error") {
		t.Errorf("without the framework: %v\n%s", err, out)
	}
	if _, out, err := run(t, "sky_callback.SkyOtherCallback"); err == nil || !strings.Contains(out, "AttributeError") {
		t.Errorf("an unknown name: %v\n%s", err, out)
	}
}

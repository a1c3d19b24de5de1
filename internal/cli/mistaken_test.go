package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestEntryPointsThatAreMistakes(t *testing.T) {
	files := map[string]fileKind{
		"task.yaml": taskFile, "my task.yaml": taskFile, "bad.yaml": brokenTask, "config.yaml": brokenTask, "run.sh": scriptFile, "./run.sh": scriptFile,
		"bin/run.sh": scriptFile, "/home/me/train.py": scriptFile, "~/train.py": scriptFile, "train.py": scriptFile, "src": folder, "make": scriptFile, "/bin/true": scriptFile,
	}
	installed := []string{"bash", "cat", "make", "python", "/bin/true"}
	launch, exec, synced := "sky launch -c x", "sky exec c", "sky launch --workdir ."
	for _, tt := range []struct {
		command, line string
		say           string // the right command; "" if it is no mistake
	}{
		{launch, "", ""},
		{launch, "task.yaml", ""},
		{launch, "bad.yaml", ""}, // its errors say more
		{launch, "nvidia-smi", ""},
		{launch, "bash run.sh", ""},
		{launch, "python train.py --config config.yaml", ""},
		{launch, "torchrun --config config.yaml", ""}, // a file that is no task
		{launch, "A=1", ""},
		{launch, "A=1 bash run.sh", ""},
		{launch, "cat task.yaml", ""},
		{launch, "make all", ""},
		{launch, "/bin/true", ""},
		{launch, "'torchrun task.yaml'", ""},
		{launch, "'my task.yaml'", ""},
		{launch, "my task.yaml", ""},
		{launch, "run.sh", "sky launch -c x --workdir . -- bash run.sh"},
		{launch, "run.sh --epochs 3", "sky launch -c x --workdir . -- bash run.sh --epochs 3"},
		{launch, "'run.sh 3 && echo x'", "sky launch -c x --workdir . -- bash run.sh 3 && echo x"},
		{launch, "./run.sh", "sky launch -c x --workdir . -- bash ./run.sh"},
		{launch, "A=1 run.sh", "--workdir . -- bash run.sh"},
		{launch, "train.py", "sky launch -c x --workdir . -- python3 train.py"},
		{launch, "/home/me/train.py 1", "sky launch -c x --workdir /home/me/ -- python3 train.py 1"},
		{launch, "~/train.py", "sky launch -c x --workdir ~/ -- python3 train.py"},
		{launch, "src", "sky launch -c x --workdir src -- COMMAND"},
		{launch, "dev task.yaml", "sky launch -c x task.yaml"},
		{launch, "task.yaml dev", "sky launch -c x task.yaml"},
		{exec, "B=2 task.yaml", "sky exec c --env B=2 task.yaml"},
		{exec, "B=2 C=3 task.yaml D=4", "sky exec c --env B=2 --env C=3 --env D=4 task.yaml"},
		{exec, "run.sh", "sky exec c --workdir . -- bash run.sh"},
		{exec, "bin/run.sh", ""}, // the work folder may be there from the launch
		{exec, "/home/me/train.py", "sky exec c --workdir /home/me/ -- python3 train.py"},
		{synced, "./run.sh", ""},
		{synced, "run.sh", "sky launch --workdir . -- bash run.sh"},
	} {
		e := entry{
			words: shellWords(tt.line), command: tt.command, copying: strings.TrimSuffix(tt.command, " --workdir ."), synced: tt.command != launch,
			kind:      func(w string) fileKind { return files[w] },
			installed: func(w string) bool { return slices.Contains(installed, w) },
		}
		got := e.mistake()
		if (got == "") != (tt.say == "") || !strings.Contains(got, tt.say) {
			t.Errorf("%s %s: %q, want %q", tt.command, tt.line, got, tt.say)
		}
	}
}

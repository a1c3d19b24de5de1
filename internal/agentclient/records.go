package agentclient

import (
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
)

// recordMost bounds one record of an agent: what it says of a job, of itself or of a
// script that it ran ends in the server's database and logs.
const recordMost = 256 << 10

// within reports whether a record with so many bytes of text and lists is within its
// limit.
func within(what string, sizes ...int) error {
	total := 0
	for _, n := range sizes {
		total += n
	}
	if total > recordMost {
		return &bounded.TooMuchError{What: what, Most: recordMost}
	}
	return nil
}

func checkJob(j *agentapi.Job) error {
	if j == nil {
		return nil
	}
	metadata := 0
	for k, v := range j.Metadata {
		metadata += len(k) + len(v)
	}
	return within("the record of a job", len(j.Key), len(j.Name), len(j.User), len(j.UserHash), len(j.Status), len(j.Resources), len(j.LogDir), len(j.TaskID),
		8*len(j.ExitCodes), len(j.Reason), len(j.Silent), metadata)
}

func checkJobs(jobs []agentapi.Job) error {
	for i := range jobs {
		if err := checkJob(&jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkInfo(i *agentapi.Info) error {
	if i == nil {
		return nil
	}
	counts, notice := 0, 0
	for k := range i.Jobs {
		counts += len(k) + 8
	}
	if i.Notice != nil {
		notice = len(i.Notice.Action)
	}
	return within("what an agent says of itself", mountsSize(i.Mounts), len(i.Version), len(i.BuildID), len(i.Platform), len(i.NodeID), len(i.BootID), len(i.Home), len(i.State), len(i.Stuck), counts, notice)
}

func checkEvent(e *agentapi.Event) error {
	for _, err := range []error{checkInfo(e.Info), checkJob(e.Job), checkJobs(e.Jobs)} {
		if err != nil {
			return err
		}
	}
	return nil
}

// check reports whether an answer's records are within their limits.
func check(out any) error {
	switch out := out.(type) {
	case *agentapi.Info:
		return checkInfo(out)
	case *agentapi.Job:
		return checkJob(out)
	case *[]agentapi.Job:
		return checkJobs(*out)
	case *agentapi.CallbackResult:
		return within("the output of a script", len(out.Output))
	}
	return nil
}

func mountsSize(m *agentapi.MountsInfo) int {
	if m == nil {
		return 0
	}
	n := len(m.Trouble)
	for _, x := range m.Mounts {
		n += len(x.Path) + len(x.URL) + len(x.Mode) + len(x.Error)
		for _, f := range x.Unsaved {
			n += len(f)
		}
	}
	return n
}

package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/registry"
)

// stage is how far a pod has come.
type stage int

const (
	queued      stage = iota // its queue has not admitted it yet
	unscheduled              // no node was found yet
	starting                 // on a node: images are pulled, volumes mounted
	running
	failed // it will not run any more
)

// pullPatience is how long an image whose registry does not answer is tried. Its
// machine has waited half a minute for an answer before it says so.
const pullPatience = time.Minute

// judgement is what a pod's status means while it is waited for.
type judgement struct {
	stage stage
	doing string // what is being waited for, for people
	err   error  // why it cannot come right
}

// judge reads a pod's status. since is when the present trouble was first seen.
// It is pure.
func judge(p *pod, place cloud.Place, since time.Duration) judgement {
	name := p.Metadata.Name
	switch p.Status.Phase {
	case "Running":
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil {
				return judgeContainer(p, &c, place, since)
			}
		}
		if p.Metadata.DeletionTimestamp != nil {
			return judgement{stage: failed, err: &cloud.CapacityError{Place: place, Err: fmt.Errorf("pod %s is being deleted before all of them ran: %s", name, obituary(p))}}
		}
		return judgement{stage: running}
	case "Failed", "Succeeded":
		return judgement{stage: failed, err: ended(p, place)}
	case "", "Pending":
	default:
		return judgement{stage: failed, err: fmt.Errorf("the API server calls pod %s %q, and we do not know what that means", name, p.Status.Phase)}
	}
	if p.Metadata.DeletionTimestamp != nil {
		return judgement{stage: failed, err: &cloud.CapacityError{Place: place, Err: fmt.Errorf("pod %s was deleted before it ran: %s", name, obituary(p))}}
	}
	scheduled := p.Status.Conditions.of("PodScheduled")
	if p.Spec.NodeName == "" && scheduled.Status != "True" {
		doing := "pod " + name + " to be given a node"
		switch queue := p.Metadata.Labels[kueueQueue]; {
		case scheduled.Reason == "SchedulingGated" && queue != "":
			return judgement{stage: queued, doing: "pod " + name + " to be admitted by its queue (" + queue + ", kubernetes.kueue)"}
		case scheduled.Reason == "SchedulingGated":
			doing = "pod " + name + " to be admitted by its queue"
		case scheduled.Message != "":
			doing += " (" + scheduled.Message + ")"
		}
		return judgement{stage: unscheduled, doing: doing}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Running == nil && c.State.Terminated == nil {
			return judgeContainer(p, &c, place, since)
		}
	}
	return judgement{stage: starting, doing: "pod " + name + " to start on " + p.Spec.NodeName}
}

func judgeContainer(p *pod, c *containerStatus, place cloud.Place, since time.Duration) judgement {
	name := p.Metadata.Name
	if c.State.Terminated != nil {
		return judgement{stage: failed, err: ended(p, place)}
	}
	j := judgement{stage: starting, doing: fmt.Sprintf("pod %s to start on %s", name, p.Spec.NodeName)}
	if c.State.Waiting == nil {
		return j
	}
	w := c.State.Waiting
	invalid := func(format string, args ...any) judgement {
		return judgement{stage: failed, err: &cloud.InvalidError{Place: place, Err: fmt.Errorf(format, args...)}}
	}
	switch w.Reason {
	case "", "PodInitializing", "ContainerCreating":
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable":
		image := imageFor(p, c)
		switch what := problemOf(w.Message); {
		case what != pullSilent && what != pullLimited:
			return judgement{stage: failed, err: &cloud.InvalidError{Place: place, Err: &cloud.ImageError{Err: unpulled(p, image, w.Message)}}}
		case since >= pullPatience && what == pullLimited:
			return judgement{stage: failed, err: &cloud.UnreachableError{Err: fmt.Errorf("the image %s could not be pulled for %v, as %s allows no more pulls for the moment; with a login it may allow more: %s",
				image, since.Round(time.Second), registry.HostOf(image), w.Message)}}
		case since >= pullPatience:
			return judgement{stage: failed, err: &cloud.UnreachableError{Err: fmt.Errorf("the image %s could not be pulled for %v, as its registry does not answer machine %s: %s",
				image, since.Round(time.Second), p.Spec.NodeName, w.Message)}}
		}
		j.doing = fmt.Sprintf("the image %s to be pulled on %s (%s)", image, p.Spec.NodeName, w.Message)
	case "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
		return judgement{stage: failed, err: &cloud.InvalidError{Place: place, Err: &cloud.ImageError{Err: fmt.Errorf("the image %s cannot be used: %s", imageFor(p, c), w.Message)}}}
	case "CreateContainerError", "RunContainerError", "StartError":
		if noShell(w.Message) {
			return judgement{stage: failed, err: &shellError{place, imageFor(p, c), w.Message}}
		}
		if slow(w.Message) { // it is tried again
			j.doing = fmt.Sprintf("container %s of pod %s to be made on %s (%s)", c.Name, name, p.Spec.NodeName, w.Message)
			return j
		}
		return invalid("container %s of pod %s cannot be started: %s: %s", c.Name, name, w.Reason, w.Message)
	default: // CreateContainerConfigError, CrashLoopBackOff, what else there may be
		return invalid("container %s of pod %s cannot be started: %s: %s", c.Name, name, w.Reason, w.Message)
	}
	return j
}

// troubled reports whether a pod waits for something that may never come, so that
// the time counts from when that began.
func troubled(p *pod) bool {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && strings.Contains(w.Reason, "Pull") {
			return true
		}
	}
	return false
}

func imageFor(p *pod, c *containerStatus) string {
	for _, s := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if s.Name == c.Name {
			return s.Image
		}
	}
	return c.Image
}

// shellError says that an image has nothing that could hold a node.
type shellError struct {
	place cloud.Place
	image string
	words string // of the container runtime
}

func (e *shellError) Error() string {
	return fmt.Sprintf("the image %s has no shell, which nodes need: %s", e.image, e.words)
}

// Unwrap makes it a refusal that holds for every try.
func (e *shellError) Unwrap() error {
	return &cloud.InvalidError{Place: e.place, Err: errors.New(e.words)}
}

// image is what the node's container runs.
func (p *pod) image() string { return imageFor(p, &containerStatus{Name: mainContainer}) }

// slow reports whether the words of a container runtime say no more than that it
// takes its time, as machines do that are busy unpacking large images.
func slow(message string) bool {
	return slices.ContainsFunc([]string{"context deadline exceeded", "DeadlineExceeded", "is reserved for", "request timed out"},
		func(words string) bool { return strings.Contains(message, words) })
}

func noShell(message string) bool {
	return strings.Contains(message, "/bin/sh") && (strings.Contains(message, "no such file") || strings.Contains(message, "not found"))
}

// ended says why a pod that was to run did not: an error of its own for each
// way to end.
func ended(p *pod, place cloud.Place) error {
	why := obituary(p)
	message := why
	switch {
	case noShell(message):
		return &shellError{place, p.image(), message}
	case p.exitCode() == exitLinks:
		return &cloud.InvalidError{Place: place, Err: fmt.Errorf("pod %s: %s", p.Metadata.Name, why)}
	case terminated(p, "OOMKilled") != "":
		return &cloud.InvalidError{Place: place, Err: fmt.Errorf("pod %s ran out of memory when it started: %s; ask for more (memory:)", p.Metadata.Name, why)}
	case terminated(p, "StartError") != "" || terminated(p, "ContainerCannotRun") != "":
		return &cloud.InvalidError{Place: place, Err: fmt.Errorf("pod %s cannot be started: %s", p.Metadata.Name, why)}
	}
	// The node sent it away (Evicted, OutOfcpu, NodeAffinity, Preempted, lost).
	return &cloud.CapacityError{Place: place, Err: fmt.Errorf("pod %s ended before it could be used: %s", p.Metadata.Name, why)}
}

// terminated is what is known of a container that ended for that reason.
func terminated(p *pod, reason string) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.Reason == reason {
			return c.Name + " " + reason
		}
	}
	return ""
}

// exitCode is that of the container that holds the node; -1 while it lives.
func (p *pod) exitCode() int {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == mainContainer && c.State.Terminated != nil {
			return c.State.Terminated.ExitCode
		}
	}
	return -1
}

// obituary says in one line why a pod ended.
func obituary(p *pod) string {
	if d := disruption(p); d != "" {
		return d
	}
	if p.Status.Reason != "" {
		return strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	if p.exitCode() == exitGone {
		return "it gave itself back"
	}
	if terminated(p, "OOMKilled") != "" {
		return "OOMKilled: it used more memory than it may, or its machine had none left"
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && (t.ExitCode != 0 || p.Status.Phase == "Failed") {
			s := fmt.Sprintf("container %s ended with code %d", c.Name, t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				s += " (" + t.Reason + ")"
			}
			if t.Message != "" {
				s += ": " + strings.TrimSpace(t.Message)
			}
			return s
		}
	}
	if p.Metadata.DeletionTimestamp != nil {
		return "somebody deleted the pod"
	}
	return "its first process ended"
}

// disruption says who took the pod away, if the cluster did.
func disruption(p *pod) string {
	c := p.Status.Conditions.of("DisruptionTarget")
	if c.Status != "True" {
		return ""
	}
	what := map[string]string{
		"PreemptionByScheduler":  "preempted by a pod of higher priority",
		"DeletionByTaintManager": "its machine does not answer or was taken out of use",
		"EvictionByEvictionAPI":  "evicted, as when a machine is drained",
		"TerminationByKubelet":   "ended by its machine, which lacked resources or was shut down",
		"DeletionByPodGC":        "its machine is gone",
	}[c.Reason]
	if what == "" {
		what = c.Reason
	}
	if c.Message != "" {
		what += ": " + c.Message
	}
	return what
}

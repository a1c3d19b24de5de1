package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/table"
)

// attemptsTable lists the clusters that the tasks of jobs had.
func attemptsTable(jobs []api.ManagedJob, now time.Time) *table.Table {
	tab := table.New("ID", "TASK", "ATTEMPT", "CLUSTER", "INFRA", "$/HR", "STARTED", "RAN FOR", "OUTCOME", "EXIT CODES", "REASON").
		Whole("CLUSTER", "OUTCOME").Prose("REASON").Optional("$/HR", "STARTED", "EXIT CODES", "RAN FOR", "INFRA")
	for _, j := range jobs {
		for _, at := range j.Attempts {
			tab.Add(number(j.JobID), number(j.TaskID), strconv.Itoa(at.Attempt), at.Cluster, at.Infra, priceCell(at), format.Ago(value(at.StartedAt), now),
				ranFor(at, now), format.OrDash(at.Outcome), exitCodes(at.ExitCodes), format.OrDash(oneLine(at.Reason)))
		}
	}
	return tab
}

func priceCell(at api.JobsAttempt) string {
	if at.Cloud == "" {
		return "-"
	}
	s := fmt.Sprintf("%.3f", at.HourlyPrice)
	if at.Spot {
		s += " spot"
	}
	return s
}

func ranFor(at api.JobsAttempt, now time.Time) string {
	if at.RanAt == nil {
		return "-"
	}
	end := float64(now.Unix())
	if at.EndedAt != nil {
		end = *at.EndedAt
	}
	return format.Elapsed(*at.RanAt, end)
}

func exitCodes(codes []int) string {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = strconv.Itoa(c)
	}
	return format.OrDash(strings.Join(words, " "))
}

// oneLine is the first line of a text.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

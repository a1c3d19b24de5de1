package buckets

import (
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	return diskspace.Bytes(n)
}

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// tell tells programs how far a transfer is, where the output is for them, too.
func tell(out cluster.Output, operation, what string, p transfer.Progress) {
	to, ok := out.(interface{ Progress(api.TransferProgress) })
	if !ok {
		return
	}
	far := api.TransferProgress{Operation: operation, What: what, Files: p.Files, Bytes: p.Bytes, TotalFiles: p.TotalFiles, TotalBytes: p.TotalBytes,
		Counted: p.Counted, Rate: p.Rate, FileRate: p.FileRate}
	if p.Left > 0 {
		left := p.Left.Seconds()
		far.Left = &left
	}
	to.Progress(far)
}

// howFar is how far a transfer is, in words: files, bytes, rate, time left.
func howFar(p transfer.Progress) string {
	parts := []string{plural(p.Files, "file")}
	switch {
	case p.Counted && p.TotalBytes > 0:
		parts = append(parts, fmt.Sprintf("%s of %s", size(p.Bytes), size(p.TotalBytes)))
	case p.Bytes > 0:
		parts = append(parts, size(p.Bytes))
	}
	if p.Rate > 0 {
		parts = append(parts, size(int64(p.Rate))+"/s")
	}
	if p.Left > 0 {
		parts = append(parts, p.Left.Round(time.Second).String()+" left")
	}
	return strings.Join(parts, ", ")
}

// howManyGone is how far a deletion is, in words: objects, rate, time left.
func howManyGone(p transfer.Progress) string {
	text := plural(p.Files, "object")
	if p.Counted && p.TotalFiles > p.Files {
		text = fmt.Sprintf("%d of %s", p.Files, plural(p.TotalFiles, "object"))
	}
	if p.FileRate >= 1 {
		text += fmt.Sprintf(", %.0f/s", p.FileRate)
	}
	if p.Left > 0 {
		text += ", " + p.Left.Round(time.Second).String() + " left"
	}
	return text
}

package cli

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// upload brings the local files of a Dag to a server that does not share this
// machine's files, and notes in the Dag what is where. nil: nothing to do.
func (a *app) upload(ctx context.Context, c *sky.Client, dag *task.Dag) (*string, error) {
	shared, err := c.SharesFiles(ctx)
	if err != nil || shared {
		return nil, err
	}
	var files []sky.UploadFile
	for _, t := range dag.Tasks {
		mapping := map[string]string{}
		for _, src := range localSources(t) {
			more, err := uploadFiles(src, src == t.Workdir)
			if err != nil {
				return nil, err
			}
			files = append(files, more...)
			mapping[src] = archiveName(src)
		}
		if len(mapping) > 0 {
			t.FileMountsMapping = mapping
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	spin := a.t.Spin("[bold cyan]Uploading files[/]")
	defer spin.Stop()
	blob, err := c.Upload(ctx, files, func(sent, total int64) {
		spin.Update("[bold cyan]Uploading files[/] " + format.Bytes(sent) + " of " + format.Bytes(total))
	})
	if err != nil {
		return nil, err
	}
	return &blob, nil
}

// localSources are the paths of this machine that a task names.
func localSources(t *task.Task) []string {
	var out []string
	add := func(p string) {
		if p != "" && !strings.Contains(p, "://") && !strings.HasPrefix(p, "skypilot:") {
			out = append(out, p)
		}
	}
	add(t.Workdir)
	for _, src := range t.FileMounts {
		add(src)
	}
	for _, m := range t.StorageMounts {
		for _, src := range m.Sources {
			add(src)
		}
	}
	if t.Service != nil {
		add(t.Service.TLSKeyfile)
		add(t.Service.TLSCertfile)
	}
	return out
}

// archiveName is where an absolute path stands in the archive.
func archiveName(p string) string {
	p = filepath.ToSlash(p)
	if vol := filepath.VolumeName(p); vol != "" {
		p = strings.TrimSuffix(vol, ":") + p[len(vol):]
	}
	return strings.TrimPrefix(p, "/")
}

func uploadFiles(src string, ignore bool) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for e, err := range filesync.Walk(src, ignore) {
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", src, err)
		}
		files = append(files, sky.UploadFile{
			Name: path.Join(archiveName(src), e.Path), Path: filepath.Join(src, filepath.FromSlash(e.Path)),
			Mode: e.Mode, Target: e.Target,
		})
	}
	return files, nil
}

package cli

import (
	"context"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
)

// openBrowser shows a page to the user; an error means that there is no browser.
func openBrowser(url string) error {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", url)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", url)
	default:
		cmd = exec.Command("xdg-open", url)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

func (a *app) dashboardCommand() *cobra.Command {
	return a.dashboardPage(command{name: "dashboard", example: "sky dashboard", aliases: []string{"ui"}, short: "Open the dashboard in a browser."}, "/dashboard/")
}

func (a *app) dashboardPage(c command, path string) *cobra.Command {
	c.run = func(ctx context.Context, _ *cobra.Command, _ []string) error {
		client, err := a.connect(ctx)
		if err != nil {
			return err
		}
		url := client.Endpoint() + path
		if err := openBrowser(url); err != nil {
			a.t.Println("The dashboard is at: " + url)
			return nil
		}
		a.t.Println("Opening the dashboard: " + url)
		return nil
	}
	return a.build(c)
}

package sky_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// Launch a task and watch it being launched.
func Example() {
	c, end := exampleServer() // c, err := sky.New(sky.Options{})
	defer end()
	ctx := context.Background()

	req, err := c.Launch(ctx, api.LaunchBody{ClusterName: "train", Task: "run: python train.py\n"})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := req.Wait(ctx, os.Stdout, sky.StreamOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("job %d on %s\n", *result.JobID, result.Handle.ClusterName)
	// Output:
	// Launching cluster train
	// job 1 on train
}

// A call that was made elsewhere, or by an earlier run of the program, is known by
// its id.
func ExampleRequestOf() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	launched, err := c.Launch(ctx, api.LaunchBody{ClusterName: "train", Task: "run: python train.py\n"})
	if err != nil {
		fmt.Println(err)
		return
	}
	id := launched.ID() // keep it

	result, err := sky.RequestOf[api.LaunchResult](c, id).Get(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Handle.ClusterName)
	// Output: train
}

func ExampleClient_Status() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	req, err := c.Status(ctx, api.StatusBody{})
	if err != nil {
		fmt.Println(err)
		return
	}
	clusters, err := req.Get(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cluster := range clusters {
		fmt.Println(cluster.Name, cluster.Status)
	}
	// Output:
	// dev UP
	// train UP
}

// Follow a job's log; what it ended with is an exit code.
func ExampleClient_Logs() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	job := 1
	logs, err := c.Logs(api.LogsBody{ClusterName: "train", JobID: &job})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := logs.Stream(ctx, os.Stdout, sky.StreamOptions{Follow: true}); err != nil {
		fmt.Println(err)
		return
	}
	code, err := logs.ExitCode(ctx)
	fmt.Println("exit code", code, err)
	// Output:
	// step 1
	// step 2
	// exit code 0 <nil>
}

// Failures of the server's side tell their class.
func ExampleClient_Exec() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	req, err := c.Exec(ctx, api.ExecBody{ClusterName: "gone", Task: "run: python train.py\n"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = req.Get(ctx)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Type == api.ErrClusterDoesNotExist {
		fmt.Println("launch it first:", e.Message)
	}
	// Output: launch it first: Cluster gone does not exist.
}

func ExampleRequest_Cancel() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	req, err := c.Start(ctx, api.StartBody{ClusterName: "train"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := req.Cancel(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, err = req.Get(ctx)
	if e, ok := errors.AsType[*api.Error](err); ok {
		fmt.Println(e.Type)
	}
	// Output: RequestCancelled
}

// Submit a managed job and wait until it has ended.
func ExampleClient_WaitJob() {
	c, end := exampleServer()
	defer end()
	ctx := context.Background()

	submitted, err := c.LaunchJob(ctx, api.JobsLaunchBody{Task: "run: python train.py\n"})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := submitted.Get(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := result.JobID[0]
	wait, err := c.WaitJob(ctx, api.JobsWaitBody{JobID: &job})
	if err != nil {
		fmt.Println(err)
		return
	}
	code, err := wait.Get(ctx)
	fmt.Println("job", job, "exit code", code, err)
	// Output: job 7 exit code 0 <nil>
}

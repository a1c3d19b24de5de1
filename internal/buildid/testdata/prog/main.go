// Command prog prints which build it is, for the tests.
package main

import (
	"fmt"
	"os"

	"github.com/skypilot-go/sky/internal/buildid"
)

var stamp string // set when the program is linked, as the state of a repository is

func main() {
	fmt.Println(buildid.ID(), buildid.Code())
	if len(os.Args) > 1 {
		fmt.Println("a message of this program", stamp)
	}
}

package serve

import "errors"

var errNoMachines = errors.New("FluffyCloud's machines need Linux or macOS")

func spawn(string) error { return errNoMachines }

func lock(string) (unlock func(), err error) { return nil, errNoMachines }

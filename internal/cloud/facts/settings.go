package facts

import "github.com/skypilot-go/sky/internal/config/keys"

// LocalCredentials is the remote_identity by which nodes get the server's credentials.
const LocalCredentials = "LOCAL_CREDENTIALS"

const (
	localCredentials = LocalCredentials
	serviceAccount   = "SERVICE_ACCOUNT"
	noUpload         = "NO_UPLOAD"
)

// Keys that several clouds have.

func prioritize() keys.Key {
	return keys.New("prioritize_reservations", keys.YesNo("Use reserved capacity before anything else.", false))
}

func reservations() keys.Key {
	return keys.New("specific_reservations", keys.List("Reservations to use.", keys.Text("A reservation.")))
}

func labels() keys.Key {
	return keys.New("labels", keys.Dict("Labels or tags on everything that is created.", keys.Text("A label's value.")))
}

func capabilities() keys.Key {
	return keys.New("capabilities", keys.List("What the cloud is used for; absent: all it can do.", keys.Choice("A use.", "compute", "storage")))
}

func internalIPs() keys.Key {
	return keys.New("use_internal_ips", keys.YesNo("Give machines no public address and reach them by their private one.", false))
}

func proxyCommand() keys.Key {
	return keys.New("ssh_proxy_command", keys.Text("ProxyCommand to reach machines by ssh; with a map, only its regions are used.").Or(keys.NullKind).PerRegion(keys.TextKind|keys.NullKind).
		ByAdmins(keys.Executes))
}

func identity(standard string) keys.Key {
	return keys.New("remote_identity", keys.Choice("Whose credentials nodes get.", localCredentials, serviceAccount, noUpload).Caseless().Defaults(standard).ByAdmins(keys.Rights))
}

// onlyIdentity is the section of a cloud that has no other settings.
func onlyIdentity(display string) func() *keys.Spec {
	return func() *keys.Spec { return keys.Section(display+".", identity(noUpload)) }
}

// identityOrRole also takes the name of a role, for all or by cluster.
func identityOrRole() keys.Key {
	return keys.New("remote_identity", keys.Text("Whose credentials nodes get: LOCAL_CREDENTIALS, SERVICE_ACCOUNT, NO_UPLOAD or the name of a role.").
		PerCluster().Defaults(localCredentials).ByAdmins(keys.Rights))
}

func runCommands() keys.Key {
	return keys.New("post_provision_runcmd", keys.List("Commands to run on new machines.",
		keys.Text("A command line, or a list of arguments.").Or(keys.ListKind).Of(keys.Text("An argument."))))
}

func names(doc string) *keys.Spec {
	return keys.Text(doc).Or(keys.NullKind | keys.ListKind).Of(keys.Text("A name."))
}

func pricing() *keys.Spec {
	rate := func(doc string) *keys.Spec { return keys.Number(doc).AtLeast(0) }
	return keys.Section("Prices per hour to plan with; free when absent.",
		keys.New("cpu", rate("Of one vCPU.")),
		keys.New("memory", rate("Of one GiB of memory.")),
		keys.New("accelerators", keys.Dict("Of one accelerator of each kind.", rate("Price per hour."))))
}

package facts

import "github.com/skypilot-go/sky/internal/schema"

// LocalCredentials is the remote_identity by which nodes get the server's credentials.
const LocalCredentials = "LOCAL_CREDENTIALS"

const (
	localCredentials = LocalCredentials
	serviceAccount   = "SERVICE_ACCOUNT"
	noUpload         = "NO_UPLOAD"
)

// Keys that several clouds have.

func prioritize() schema.Key {
	return schema.New("prioritize_reservations", schema.YesNo("Use reserved capacity before anything else.", false))
}

func reservations() schema.Key {
	return schema.New("specific_reservations", schema.List("Reservations to use.", schema.Text("A reservation.")))
}

func labels() schema.Key {
	return schema.New("labels", schema.Dict("Labels or tags on everything that is created.", schema.Text("A label's value.")))
}

func capabilities() schema.Key {
	return schema.New("capabilities", schema.List("What the cloud is used for; absent: all it can do.", schema.Choice("A use.", "compute", "storage")))
}

func internalIPs() schema.Key {
	return schema.New("use_internal_ips", schema.YesNo("Give machines no public address and reach them by their private one.", false))
}

func proxyCommand() schema.Key {
	return schema.New("ssh_proxy_command", schema.Text("ProxyCommand to reach machines by ssh; with a map, only its regions are used.").Or(schema.NullKind).PerRegion(schema.TextKind|schema.NullKind).
		ByAdmins(schema.Executes))
}

func identity(standard string) schema.Key {
	return schema.New("remote_identity", schema.Choice("Whose credentials nodes get.", localCredentials, serviceAccount, noUpload).Caseless().Defaults(standard).ByAdmins(schema.Rights))
}

// onlyIdentity is the section of a cloud that has no other settings.
func onlyIdentity(display string) func() *schema.Spec {
	return func() *schema.Spec { return schema.Section(display+".", identity(noUpload)) }
}

// identityOrRole also takes the name of a role, for all or by cluster.
func identityOrRole() schema.Key {
	return schema.New("remote_identity", schema.Text("Whose credentials nodes get: LOCAL_CREDENTIALS, SERVICE_ACCOUNT, NO_UPLOAD or the name of a role.").
		PerCluster().Defaults(localCredentials).ByAdmins(schema.Rights))
}

func runCommands() schema.Key {
	return schema.New("post_provision_runcmd", schema.List("Commands to run on new machines.",
		schema.Text("A command line, or a list of arguments.").Or(schema.ListKind).Of(schema.Text("An argument."))))
}

func names(doc string) *schema.Spec {
	return schema.Text(doc).Or(schema.NullKind | schema.ListKind).Of(schema.Text("A name."))
}

func pricing() *schema.Spec {
	rate := func(doc string) *schema.Spec { return schema.Number(doc).AtLeast(0) }
	return schema.Section("Prices per hour to plan with; free when absent.",
		schema.New("cpu", rate("Of one vCPU.")),
		schema.New("memory", rate("Of one GiB of memory.")),
		schema.New("accelerators", schema.Dict("Of one accelerator of each kind.", rate("Price per hour."))))
}

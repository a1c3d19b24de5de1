// Package all lists the clouds built into sky.
package all

import (
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/azure"
	"github.com/skypilot-go/sky/internal/cloud/cudo"
	"github.com/skypilot-go/sky/internal/cloud/do"
	"github.com/skypilot-go/sky/internal/cloud/docker"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluidstack"
	"github.com/skypilot-go/sky/internal/cloud/gcp"
	"github.com/skypilot-go/sky/internal/cloud/hyperbolic"
	"github.com/skypilot-go/sky/internal/cloud/ibm"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/cloud/lambda"
	"github.com/skypilot-go/sky/internal/cloud/local"
	"github.com/skypilot-go/sky/internal/cloud/mithril"
	"github.com/skypilot-go/sky/internal/cloud/nebius"
	"github.com/skypilot-go/sky/internal/cloud/oci"
	"github.com/skypilot-go/sky/internal/cloud/paperspace"
	"github.com/skypilot-go/sky/internal/cloud/primeintellect"
	"github.com/skypilot-go/sky/internal/cloud/runpod"
	"github.com/skypilot-go/sky/internal/cloud/scp"
	"github.com/skypilot-go/sky/internal/cloud/seeweb"
	"github.com/skypilot-go/sky/internal/cloud/shadeform"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/cloud/vast"
	"github.com/skypilot-go/sky/internal/cloud/verda"
	"github.com/skypilot-go/sky/internal/cloud/vsphere"
	"github.com/skypilot-go/sky/internal/cloud/yotta"
)

// Options is what providers need to know of the installation.
type Options struct {
	LocalRoot string          // where the nodes of the local provider live
	Pools     sshpool.Options // where the pools of the user's own machines are described
	Docker    *docker.Engine  // the container engine of this machine
	// Kubernetes are the clusters of the kubeconfig; nil: this build rents no pods.
	Kubernetes kubernetes.Options
	AWS        aws.Options // what is known of the account
	GCP        gcp.Options // what is known of the project
	Azure      azure.Options
	Nebius     nebius.Options
}

// Providers returns the clouds in the order that "sky check" shows.
func Providers(o Options) *cloud.Registry {
	return cloud.NewRegistry(
		local.New(local.Options{Root: o.LocalRoot}),
		fluffycloud.New(fluffycloud.Options{}),
		sshpool.New(o.Pools),
		docker.New(o.Docker),
		kubernetes.New(o.Kubernetes),
		aws.New(o.AWS),
		gcp.New(o.GCP),
		azure.New(o.Azure),
		lambda.New(lambda.Options{}),
		runpod.New(runpod.Options{}),
		cudo.New(cudo.Options{}),
		do.New(do.Options{}),
		fluidstack.New(fluidstack.Options{}),
		paperspace.New(paperspace.Options{}),
		vast.New(vast.Options{}),
		verda.New(verda.Options{}),
		shadeform.New(shadeform.Options{}),
		hyperbolic.New(hyperbolic.Options{}),
		primeintellect.New(primeintellect.Options{}),
		oci.New(oci.Options{}),
		mithril.New(mithril.Options{}),
		seeweb.New(seeweb.Options{}),
		nebius.New(o.Nebius),
		ibm.New(ibm.Options{}),
		yotta.New(yotta.Options{}),
		vsphere.New(vsphere.Options{}),
		scp.New(scp.Options{}),
	)
}

package s3

import (
	"github.com/skypilot-go/sky/internal/storage"
)

// A member is a store that speaks the API of S3.
type member struct {
	store storage.Store
	// Where its users have their keys: a profile in files below the home folder.
	// Without a profile the SDK's own chain finds the keys.
	profile, credentials, config string
	// endpoint is where it answers when neither the caller nor the profile says;
	// {region} and {account} stand for those. "" with a profile: the profile must
	// say. "" for AWS: the SDK knows.
	endpoint    string
	accountFile string // what {account} is read from, below the home folder
	pathStyle   bool   // the bucket stands in the path, not in the host's name
	region      string // when nobody says
	checksum    checksum
	create      createMode
	fix         string // what to do when there are no keys
	// What it cannot do, of what S3 can.
	lacks lack
}

// A checksum is how content is protected on its way.
type checksum uint8

const (
	crc32Sums checksum = iota // x-amz-checksum-crc32, which the store keeps
	md5Sums                   // Content-MD5, which every store of the family knows
)

type createMode uint8

const (
	createAnywhere createMode = iota // with the region as location constraint
	createPlain                      // no location constraint
	createSmart                      // IBM's: the region with a storage class
	createNever
)

type lack uint8

const (
	noTags lack = 1 << iota
	noVersions
	noConditions
	noConditionalParts
	noOddParts // parts but the last one have one size
)

// family are the stores that speak the API of S3: a row is a store.
var family = []member{
	{
		store: storage.S3, region: "us-east-1", checksum: crc32Sums,
		fix: "run: aws configure  (or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
	},
	{
		store: storage.R2, profile: "r2", credentials: ".cloudflare/r2.credentials",
		endpoint: "https://{account}.r2.cloudflarestorage.com", accountFile: ".cloudflare/accountid",
		pathStyle: true, region: "auto", checksum: crc32Sums, create: createPlain, lacks: noTags | noVersions | noConditionalParts | noOddParts,
		fix: "write the account's id to ~/.cloudflare/accountid and an API token of R2 to ~/.cloudflare/r2.credentials as profile r2",
	},
	{
		store: storage.Nebius, profile: "nebius", credentials: ".aws/credentials", config: ".aws/config",
		endpoint: "https://storage.{region}.nebius.cloud", region: "eu-north1", checksum: md5Sums, create: createPlain, lacks: noTags | noConditions,
		fix: "run: aws configure --profile nebius  (and set endpoint_url and region of that profile)",
	},
	{
		store: storage.CoreWeave, profile: "cw", credentials: ".coreweave/cw.credentials", config: ".coreweave/cw.config",
		endpoint: "https://cwobject.com", region: "US-EAST-01A", checksum: md5Sums, create: createNever, lacks: noTags | noConditions,
		fix: "write an access key to ~/.coreweave/cw.credentials as profile cw",
	},
	{
		store: storage.VastData, profile: "vastdata", credentials: ".vastdata/vastdata.credentials", config: ".vastdata/vastdata.config",
		pathStyle: true, region: "auto", checksum: md5Sums, create: createPlain, lacks: noTags | noConditions,
		fix: "write an access key to ~/.vastdata/vastdata.credentials and endpoint_url to ~/.vastdata/vastdata.config, both as profile vastdata",
	},
	{
		store: storage.OCI, profile: "oci", credentials: ".oci/s3.credentials", config: ".oci/s3.config",
		pathStyle: true, checksum: md5Sums, create: createPlain, lacks: noTags | noVersions | noConditions,
		fix: "write a customer secret key to ~/.oci/s3.credentials, and endpoint_url (https://NAMESPACE.compat.objectstorage.REGION.oci.customer-oci.com) and region to ~/.oci/s3.config, both as profile oci",
	},
	{
		store: storage.IBM, endpoint: "https://s3.{region}.cloud-object-storage.appdomain.cloud",
		pathStyle: true, region: "us-east", checksum: md5Sums, create: createSmart, lacks: noTags | noConditions,
		fix: "write access_key_id and secret_access_key of an HMAC key to ~/.ibm/credentials.yaml",
	},
}

// Stores lists the stores of the family.
func Stores() []storage.Store {
	out := make([]storage.Store, len(family))
	for i, m := range family {
		out[i] = m.store
	}
	return out
}

func memberOf(s storage.Store) *member {
	for i := range family {
		if family[i].store == s {
			return &family[i]
		}
	}
	return nil
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

func (m *member) caps() storage.Caps {
	return storage.Caps{
		Create: m.create != createNever, Tags: m.lacks&noTags == 0, Multipart: true, CopyPart: true, Uploads: true,
		Versions: m.lacks&noVersions == 0, Conditional: m.lacks&noConditions == 0, ConditionalParts: m.lacks&(noConditions|noConditionalParts) == 0, Metadata: true,
		After: true, Ordered: true, SamePart: m.lacks&noOddParts != 0,
		MinPart: 5 * mib, MaxPart: 5 * gib, MaxParts: 10_000, MaxPut: 5 * gib, MaxCopy: 5 * gib,
		MaxRemove: 1000, MaxKey: 1024, MaxMetadata: 2048,
	}
}

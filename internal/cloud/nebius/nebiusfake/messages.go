package nebiusfake

// definitions are the facts of Nebius' protocol buffers: names, numbers and types of what
// the fake understands, as github.com/nebius/api defines them in the folder nebius of that
// repository, one file for each noun (compute/v1/instance.proto) and one for its service
// (compute/v1/instance_service.proto). What real clients send besides is passed over. Two
// numbers are not from there: managed_disk and ManagedDisk's are the next free ones, since
// the copies of instance.proto at hand end before it.
func definitions() string {
	instances := service("Instance", made, `
		message StartInstanceRequest { string id = 1; }
		message StopInstanceRequest { string id = 1; }
		message ListOperationsByParentRequest { string parent_id = 1; int64 page_size = 2; string page_token = 3; }`,
		"rpc Start(StartInstanceRequest) returns (nebius.common.v1.Operation);", "rpc Stop(StopInstanceRequest) returns (nebius.common.v1.Operation);",
		"rpc ListOperationsByParent(ListOperationsByParentRequest) returns (nebius.common.v1.ListOperationsResponse);",
	)
	return accounts + machines + instances + service("Disk", made, "") + service("GpuCluster", made, "") +
		networks + service("Network", found, "") + service("Subnet", found, "") + service("SecurityGroup", made, "") + service("SecurityRule", made, "") + prices
}

const accounts = `
package nebius.common.v1;
message ResourceMetadata {
	string id = 1; string parent_id = 2; string name = 3; int64 resource_version = 4;
	google.protobuf.Timestamp created_at = 5; google.protobuf.Timestamp updated_at = 6; map<string, string> labels = 7;
}
message GetByNameRequest { string parent_id = 1; string name = 2; }
message Operation {
	string id = 1; string description = 2; google.protobuf.Timestamp created_at = 3; string created_by = 4; google.protobuf.Timestamp finished_at = 5;
	google.protobuf.Any request = 6; string resource_id = 7; google.protobuf.Any progress_data = 9; google.rpc.Status status = 10;
}
message GetOperationRequest { string id = 1; }
message ListOperationsRequest { string resource_id = 1; int64 page_size = 2; string page_token = 3; }
message ListOperationsResponse { repeated Operation operations = 1; string next_page_token = 2; }
service OperationService {
	rpc Get(GetOperationRequest) returns (Operation);
	rpc List(ListOperationsRequest) returns (ListOperationsResponse);
}
message ServiceError {
	string service = 1; string code = 2;
	oneof details {
		BadRequest bad_request = 100; BadResourceState bad_resource_state = 110; ResourceNotFound resource_not_found = 111;
		ResourceAlreadyExists resource_already_exists = 112; PermissionDenied permission_denied = 120; ResourceConflict resource_conflict = 130;
		TooManyRequests too_many_requests = 140; QuotaFailure quota_failure = 141; NotEnoughResources not_enough_resources = 142; InternalError internal_error = 999;
	}
	RetryType retry_type = 30;
	enum RetryType { UNSPECIFIED = 0; CALL = 1; UNIT_OF_WORK = 2; NOTHING = 3; }
}
message BadRequest {
	repeated Violation violations = 1;
	message Violation { string field = 1; string message = 2; }
}
message BadResourceState { string resource_id = 1; string message = 2; }
message ResourceNotFound { string resource_id = 1; }
message ResourceAlreadyExists { string resource_id = 1; }
message PermissionDenied { string resource_id = 1; }
message ResourceConflict { string resource_id = 1; string message = 2; }
message TooManyRequests { string violation = 1; }
message InternalError { string request_id = 1; string trace_id = 2; }
message QuotaFailure {
	repeated Violation violations = 1;
	message Violation { string quota = 1; string message = 2; string limit = 3; string requested = 4; }
}
message NotEnoughResources {
	repeated Violation violations = 1;
	message Violation { string resource_type = 1; string message = 2; string requested = 3; }
}

package nebius.iam.v1;
message ExchangeTokenRequest {
	string grant_type = 1; string requested_token_type = 2; string subject_token = 3; string subject_token_type = 4;
	repeated string scopes = 5; string audience = 6; string actor_token = 7; string actor_token_type = 8; repeated string resource = 9;
}
message CreateTokenResponse { string access_token = 1; string issued_token_type = 2; string token_type = 3; int64 expires_in = 4; repeated string scopes = 5; }
service TokenExchangeService { rpc Exchange(ExchangeTokenRequest) returns (CreateTokenResponse); }
message Container { nebius.common.v1.ResourceMetadata metadata = 1; ContainerSpec spec = 2; ContainerStatus status = 3; }
message ContainerSpec { string region = 1; }
message ContainerStatus { string region = 4; }
message GetProjectRequest { string id = 1; }
message GetProjectByNameRequest { string parent_id = 1; string name = 2; }
message ListProjectsRequest { string parent_id = 1; int64 page_size = 2; string page_token = 3; string filter = 4; }
message ListProjectsResponse { repeated Container items = 1; string next_page_token = 2; }
service ProjectService {
	rpc Get(GetProjectRequest) returns (Container);
	rpc GetByName(GetProjectByNameRequest) returns (Container);
	rpc List(ListProjectsRequest) returns (ListProjectsResponse);
}
`

const machines = `
package nebius.compute.v1;
message Instance { nebius.common.v1.ResourceMetadata metadata = 1; InstanceSpec spec = 2; InstanceStatus status = 3; }
message InstanceSpec {
	string service_account_id = 1; ResourcesSpec resources = 2; InstanceGpuClusterSpec gpu_cluster = 3; repeated NetworkInterfaceSpec network_interfaces = 4;
	AttachedDiskSpec boot_disk = 5; repeated AttachedDiskSpec secondary_disks = 6; repeated AttachedFilesystemSpec filesystems = 7; string cloud_init_user_data = 8;
	bool stopped = 13; InstanceRecoveryPolicy recovery_policy = 15; PreemptibleSpec preemptible = 19; string hostname = 20;
}
message PreemptibleSpec {
	PreemptionPolicy on_preemption = 1; int32 priority = 2;
	enum PreemptionPolicy { UNSPECIFIED = 0; STOP = 1; }
}
message ResourcesSpec {
	string platform = 1;
	oneof size { string preset = 2; }
}
message InstanceGpuClusterSpec { string id = 1; }
message AttachedDiskSpec {
	AttachMode attach_mode = 1; string device_id = 3;
	enum AttachMode { UNSPECIFIED = 0; READ_ONLY = 1; READ_WRITE = 2; }
	oneof type { ExistingDisk existing_disk = 2; ManagedDisk managed_disk = 4; }
}
message ExistingDisk { string id = 1; }
message ManagedDisk { string name = 1; DiskSpec spec = 2; }
message ExistingFilesystem { string id = 1; }
message AttachedFilesystemSpec {
	AttachMode attach_mode = 1; string mount_tag = 2;
	enum AttachMode { UNSPECIFIED = 0; READ_ONLY = 1; READ_WRITE = 2; }
	oneof type { ExistingFilesystem existing_filesystem = 3; }
}
message InstanceStatus {
	InstanceState state = 1; repeated NetworkInterfaceStatus network_interfaces = 2; bool reconciling = 5; string maintenance_event_id = 7;
	enum InstanceState { UNSPECIFIED = 0; CREATING = 1; UPDATING = 2; STARTING = 3; RUNNING = 4; STOPPING = 5; STOPPED = 6; DELETING = 7; ERROR = 8; }
}
enum InstanceRecoveryPolicy { RECOVER = 0; FAIL = 1; }
message NetworkInterfaceSpec { string subnet_id = 1; string name = 2; IPAddress ip_address = 3; PublicIPAddress public_ip_address = 4; repeated SecurityGroup security_groups = 7; }
message IPAddress { string allocation_id = 1; }
message PublicIPAddress {
	bool static = 3;
	oneof allocation { string allocation_id = 1; }
}
message SecurityGroup { string id = 1; }
message NetworkInterfaceStatus { int32 index = 1; string name = 2; IPAddressStatus ip_address = 3; PublicIPAddressStatus public_ip_address = 4; string mac_address = 7; string fqdn = 9; }
message IPAddressStatus { string address = 1; string allocation_id = 2; }
message PublicIPAddressStatus { string address = 1; string allocation_id = 2; bool static = 3; }
message Disk { nebius.common.v1.ResourceMetadata metadata = 1; DiskSpec spec = 2; DiskStatus status = 3; }
message DiskSpec {
	int64 block_size_bytes = 5; DiskType type = 6;
	enum DiskType { UNSPECIFIED = 0; NETWORK_SSD = 1; NETWORK_HDD = 2; NETWORK_SSD_NON_REPLICATED = 3; NETWORK_SSD_IO_M3 = 4; }
	oneof size { int64 size_bytes = 1; int64 size_kibibytes = 2; int64 size_mebibytes = 3; int64 size_gibibytes = 4; }
	oneof source { string source_image_id = 8; SourceImageFamily source_image_family = 10; }
}
message SourceImageFamily { string image_family = 1; string parent_id = 2; }
message DiskStatus {
	State state = 1; string state_description = 2; string read_write_attachment = 3; repeated string read_only_attachments = 4; int64 size_bytes = 6; bool reconciling = 7;
	enum State { UNSPECIFIED = 0; CREATING = 1; READY = 2; UPDATING = 3; DELETING = 4; ERROR = 5; BROKEN = 6; }
}
message Image { nebius.common.v1.ResourceMetadata metadata = 1; ImageSpec spec = 2; ImageStatus status = 3; }
message ImageSpec { string description = 1; string image_family = 2; string version = 3; }
message ImageStatus {
	State state = 1; int64 min_disk_size_bytes = 4;
	enum State { UNSPECIFIED = 0; CREATING = 1; READY = 2; UPDATING = 3; DELETING = 4; ERROR = 5; }
}
message Platform { nebius.common.v1.ResourceMetadata metadata = 1; PlatformSpec spec = 2; }
message PlatformSpec { repeated Preset presets = 1; string human_readable_name = 4; }
message Preset { string name = 1; PresetResources resources = 2; bool allow_gpu_clustering = 3; }
message PresetResources { int32 vcpu_count = 1; int32 memory_gibibytes = 3; int32 gpu_count = 4; }
message GpuCluster { nebius.common.v1.ResourceMetadata metadata = 1; GpuClusterSpec spec = 2; GpuClusterStatus status = 3; }
message GpuClusterSpec { string infiniband_fabric = 1; }
message GpuClusterStatus { repeated string instances = 1; bool reconciling = 2; }
message GetImageRequest { string id = 1; }
message GetImageLatestByFamilyRequest { string image_family = 1; string parent_id = 2; }
service ImageService {
	rpc Get(GetImageRequest) returns (Image);
	rpc GetLatestByFamily(GetImageLatestByFamilyRequest) returns (Image);
}
message ListPlatformsRequest { int64 page_size = 1; string page_token = 2; string parent_id = 3; }
message ListPlatformsResponse { repeated Platform items = 1; string next_page_token = 2; }
service PlatformService {
	rpc GetByName(nebius.common.v1.GetByNameRequest) returns (Platform);
	rpc List(ListPlatformsRequest) returns (ListPlatformsResponse);
}
`

const networks = `
package nebius.vpc.v1;
message Network { nebius.common.v1.ResourceMetadata metadata = 1; NetworkStatus status = 3; }
message NetworkStatus {
	State state = 1;
	enum State { STATE_UNSPECIFIED = 0; CREATING = 1; READY = 2; DELETING = 3; }
}
message Subnet { nebius.common.v1.ResourceMetadata metadata = 1; SubnetSpec spec = 2; SubnetStatus status = 3; }
message SubnetSpec { string network_id = 1; }
message SubnetStatus {
	State state = 1; repeated string ipv4_private_cidrs = 2;
	enum State { STATE_UNSPECIFIED = 0; CREATING = 1; READY = 2; DELETING = 3; }
}
message SecurityGroup { nebius.common.v1.ResourceMetadata metadata = 1; SecurityGroupSpec spec = 2; SecurityGroupStatus status = 3; }
message SecurityGroupSpec { string network_id = 1; }
message SecurityGroupStatus {
	State state = 1; bool default = 2;
	enum State { STATE_UNSPECIFIED = 0; READY = 2; }
}
message SecurityRule { nebius.common.v1.ResourceMetadata metadata = 1; SecurityRuleSpec spec = 2; SecurityRuleStatus status = 3; }
message SecurityRuleSpec {
	RuleAccessAction access = 1; int32 priority = 2; RuleProtocol protocol = 3; RuleType type = 6;
	oneof match { RuleIngress ingress = 4; RuleEgress egress = 5; }
}
message RuleIngress { string source_security_group_id = 1; repeated string source_cidrs = 2; repeated int32 destination_ports = 3; }
message RuleEgress { string destination_security_group_id = 1; repeated string destination_cidrs = 2; repeated int32 destination_ports = 3; }
enum RuleProtocol { PROTOCOL_UNSPECIFIED = 0; ANY = 1; TCP = 2; UDP = 3; ICMP = 4; }
enum RuleAccessAction { ACCESS_UNSPECIFIED = 0; ALLOW = 1; DENY = 2; }
enum RuleType { RULE_TYPE_UNSPECIFIED = 0; STATEFUL = 1; STATELESS = 2; }
message SecurityRuleStatus {
	State state = 1; int32 effective_priority = 4;
	enum State { STATE_UNSPECIFIED = 0; CREATING = 1; READY = 2; DELETING = 3; }
}
`

const prices = `
package nebius.capacity.v1;
message ResourceAdvice { nebius.common.v1.ResourceMetadata metadata = 1; ResourceAdviceSpec spec = 2; ResourceAdviceStatus status = 3; }
message ResourceAdviceSpec {
	string region = 1; string fabric = 2;
	oneof resource_details { ComputeInstanceDetails compute_instance = 10; }
}
message ComputeInstanceDetails {
	string platform = 1; Preset preset = 2; int32 gpu_memory_gigabytes = 3;
	message Preset {
		string name = 1; Resources resources = 2;
		message Resources { int32 vcpu_count = 1; int32 memory_gibibytes = 2; int32 gpu_count = 3; }
	}
}
message ResourceAdviceStatus {
	Availability reserved = 1; Availability on_demand = 2; Availability preemptible = 3;
	message Availability {
		DataState data_state = 1; uint32 available = 2; uint32 limit = 4; google.protobuf.Timestamp effective_at = 10;
		enum DataState { DATA_STATE_UNSPECIFIED = 0; DATA_STATE_FRESH = 1; DATA_STATE_STALE = 2; DATA_STATE_UNKNOWN = 10; }
	}
}
message ListResourceAdviceRequest { string parent_id = 1; int64 page_size = 2; string page_token = 3; }
message ListResourceAdviceResponse { repeated ResourceAdvice items = 1; string next_page_token = 2; }
service ResourceAdviceService { rpc List(ListResourceAdviceRequest) returns (ListResourceAdviceResponse); }

package nebius.billing.v1;
message ResourceSpec { google.protobuf.Any spec = 1; }
enum OfferType { OFFER_TYPE_UNSPECIFIED = 0; OFFER_TYPE_CONTRACT_PRICE = 1; }
message EstimateBatchRequest { repeated ResourceSpec resource_specs = 1; repeated OfferType offer_types = 10; string currency = 11; }
message EstimateBatchResponse { repeated ResourceCost resource_costs = 1; repeated TotalCost total_costs = 10; string currency = 20; }
message ResourceCost {
	nebius.common.v1.ResourceMetadata metadata = 1; AggregationUnit aggregation_unit = 4;
	oneof cost_type { GeneralResourceCost general = 20; }
}
message TotalCost {
	AggregationUnit aggregation_unit = 1;
	oneof cost_type { GeneralResourceCost general = 20; }
}
message GeneralResourceCost { CostBreakdown total = 1; }
message CostBreakdown { string cost = 2; string cost_rounded = 3; }
message AggregationUnit {
	string unit = 1; UnitType unit_type = 2;
	enum UnitType { UNIT_TYPE_UNSPECIFIED = 0; UNIT_TYPE_TIME_BASED = 1; UNIT_TYPE_USAGE_BASED = 2; }
}
service CalculatorService { rpc EstimateBatch(EstimateBatchRequest) returns (EstimateBatchResponse); }

package nebius.billing.v1alpha1;
message ResourceSpec {
	oneof resource_spec { nebius.compute.v1.CreateInstanceRequest compute_instance_spec = 100; nebius.compute.v1.CreateDiskRequest compute_disk_spec = 102; }
}
message ResourceGroupCost {
	oneof cost_type { GeneralTotalCost general = 10; }
}
message GeneralTotalCost { CostBreakdown total = 1; }
message CostBreakdown { string cost = 2; string cost_rounded = 3; }
enum OfferType { OFFER_TYPE_UNSPECIFIED = 0; OFFER_TYPE_CONTRACT_PRICE = 1; }
message EstimateBatchRequest { repeated ResourceSpec resource_specs = 1; repeated OfferType offer_types = 10; }
message EstimateBatchResponse { ResourceGroupCost hourly_cost = 10; ResourceGroupCost monthly_cost = 20; }
service CalculatorService { rpc EstimateBatch(EstimateBatchRequest) returns (EstimateBatchResponse); }
`

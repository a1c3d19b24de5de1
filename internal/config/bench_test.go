package config

import "testing"

// typical is about what people have in ~/.sky/config.yaml.
const typical = `
# Where the server is.
api_server:
  endpoint: https://sky.example.com
  service_account_token: sky_abc
allowed_clouds: [aws, gcp, kubernetes]
jobs:
  controller:
    resources: {cpus: 4+, memory: 4x, infra: aws}
    autostop: {idle_minutes: 10, down: false}
aws:
  labels: {team: research, project: x}
  vpc_name: my-vpc
  use_internal_ips: true
  ssh_proxy_command:
    us-east-1: ssh -W %h:%p ec2-user@jump1
    us-west-2: ssh -W %h:%p ec2-user@jump2
  security_group_name:
    - 'train-*': sg-train
    - '*': sg-default
kubernetes:
  allowed_contexts: [east, west]
  provision_timeout: 600
  pod_config:
    metadata: {labels: {team: research}}
    spec:
      containers:
        - env:
            - {name: HTTP_PROXY, value: 'http://proxy:3128'}
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
`

func BenchmarkLoad(b *testing.B) {
	f := &folder{dir: b.TempDir(), env: map[string]string{}}
	t := &testing.T{}
	f.t = t
	f.write(".sky/config.yaml", typical)
	f.write(".sky.yaml", "aws: {labels: {project: y}}\n")
	o := f.options(Client, "aws.vpc_name=z")
	for b.Loop() {
		if _, err := Load(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	n, err := parse([]byte(typical), newSource("", ""))
	if err != nil {
		b.Fatal(err)
	}
	c := &Config{side: Server, root: n, own: n}
	sent := c.ForRequest()
	for b.Loop() {
		if _, err := c.Request(sent, Admin); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	n, err := parse([]byte(typical), newSource("", ""))
	if err != nil {
		b.Fatal(err)
	}
	c := &Config{root: n}
	for b.Loop() {
		c.For(Scope{Cloud: "aws", Region: "us-east-1", Cluster: "train-1"}).Text("security_group_name")
	}
}

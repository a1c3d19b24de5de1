package facts

var docker = Cloud{Name: "docker", Display: "Docker", Regions: "this machine", Proven: "on a real engine", Ours: true, Hardware: Here}

package facts

var docker = Cloud{Name: "docker", Display: "Docker", Proven: "on a real engine", Ours: true, Hardware: Here}

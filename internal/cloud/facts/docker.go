package facts

var docker = Cloud{Name: "docker", Display: "Docker", Ours: true, Hardware: Here}

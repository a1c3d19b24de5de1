package facts

var vsphere = Cloud{Name: "vsphere", Display: "vSphere", Prices: &Prices{CPUs: 2}}

package daemon

// notYet are the requests behind commands of this version that it cannot carry out
// yet. The command line refuses these commands at once.
var notYet = []string{"jobs.pool_apply", "kubernetes_label_gpus", "recipes.get"}

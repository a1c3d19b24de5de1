// Package catalog knows what can be rented: which instance types and
// accelerators each cloud offers, where, and for how much.
//
// A [Table] is one cloud's price list, read once from CSV into columns and
// shared by all readers. It answers a [Query] with offers in the order in which
// they should be tried. A [Store] keeps the tables of all clouds: it finds the
// files, downloads and refreshes them, and loads them again when they change.
package catalog

package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Services is the store of services and pools.
type Services struct{ s *Store }

// Services is the store of services and pools.
func (s *Store) Services() *Services { return &Services{s} }

// ServiceLease begins the names of leases on services; their hashes follow.
const ServiceLease = "service/"

var (
	serviceColumns = columns{"name", "hash", "request_id", "version", "epoch", "kind", "user_hash", "user_name", "workspace", "created_at", "ready_at",
		"port", "latest", "down_asked", "purge", "asked", "status", "state", "shown"}
	serviceVersionColumns = columns{"id", "hash", "number", "request_id", "mode", "entrypoint", "created_at", "files", "task", "config"}
	serviceReplicaColumns = columns{"hash", "id", "state", "probes", "progress", "cluster_name", "cluster_hash", "cluster_job", "endpoint", "asked"}

	selectServices        = "SELECT " + serviceColumns.list() + " FROM services "
	selectServiceVersions = "SELECT " + serviceVersionColumns.list() + " FROM service_versions "
	selectServiceReplicas = "SELECT " + serviceReplicaColumns.list() + " FROM service_replicas "
	insertServiceVersion  = "INSERT INTO service_versions (" + serviceVersionColumns.list() + ") VALUES (" + serviceVersionColumns.marks() + ") ON CONFLICT DO NOTHING"
	// asked is a user's, and not saved with the rest.
	upsertServiceReplica = "INSERT INTO service_replicas (" + serviceReplicaColumns.list() + ") VALUES (" + serviceReplicaColumns.marks() +
		") ON CONFLICT (hash, id) DO UPDATE SET " + excluded(serviceReplicaColumns[2:len(serviceReplicaColumns)-1])
)

func serviceFields(v *Service) []any {
	return []any{text(&v.Name), text(&v.Hash), text(&v.RequestID), number(&v.Version), number(&v.Epoch), text(&v.Kind), text(&v.UserHash), text(&v.UserName), text(&v.Workspace),
		instant(&v.CreatedAt), instant(&v.ReadyAt), number(&v.Port), number(&v.Latest), truth(&v.DownAsked), truth(&v.Purge), text(&v.Asked), text(&v.Status), binary(&v.State), nested(&v.Shown)}
}

func (s *Store) serviceVersionFields(v *ServiceVersion) []any {
	id := v.id()
	return []any{text(&id), text(&v.Hash), number(&v.Number), text(&v.RequestID), text(&v.Mode), text(&v.Entrypoint), instant(&v.CreatedAt), nested(&v.Files),
		s.versionCell(v, "task").bytes(&v.Task), s.versionCell(v, "config").bytes(&v.Config)}
}

func (s *Store) versionCell(v *ServiceVersion, column string) cell {
	return cell{s, "service_versions", column, v.id}
}

func serviceReplicaFields(r *ServiceReplica) []any {
	return []any{text(&r.Hash), number(&r.ID), binary(&r.State), binary(&r.Probes), binary(&r.Progress), text(&r.ClusterName), text(&r.ClusterHash), number(&r.ClusterJob),
		text(&r.Endpoint), text(&r.Asked)}
}

// Create writes a new service with its first version. If the name is taken the
// result is who has it and [ErrConflict]; a request that made one before gets that
// one.
func (t *Services) Create(ctx context.Context, v *Service, first *ServiceVersion) (*Service, error) {
	row := *v
	row.Version, row.Latest = 1, 1
	made := *first
	made.Hash, made.Number = row.Hash, 1
	err := t.s.createOnce(ctx, func(s *session) error {
		if err := changed(s.exec("INSERT INTO services ("+serviceColumns.list()+") VALUES ("+serviceColumns.marks()+") ON CONFLICT DO NOTHING", serviceFields(&row)...)); err != nil {
			return err
		}
		return changed(s.exec(insertServiceVersion, t.s.serviceVersionFields(&made)...))
	})
	if !errors.Is(err, ErrConflict) {
		return &row, err
	}
	have, gerr := t.Get(ctx, row.Name)
	switch {
	case errors.Is(gerr, ErrNotFound): // its port was taken
		return nil, err
	case gerr != nil:
		return nil, gerr
	case have.RequestID == row.RequestID:
		return have, nil
	}
	return have, err
}

// Get is the service of that name, or [ErrNotFound].
func (t *Services) Get(ctx context.Context, name string) (*Service, error) {
	v := new(Service)
	err := t.s.read(ctx).one(serviceFields(v), selectServices+"WHERE name = ?", name)
	return v, t.s.explain(err)
}

// ServiceFilter selects services; zero fields select all.
type ServiceFilter struct {
	Names  []string
	Hashes []string
	Kind   ServiceKind
	Scope  *Scope // in workspaces that it sees
}

// List is the services that the filter selects, in order of their names.
func (t *Services) List(ctx context.Context, f ServiceFilter) ([]*Service, error) {
	var w where
	in(&w, "name", f.Names)
	in(&w, "hash", f.Hashes)
	in(&w, "workspace", f.Scope.Within())
	w.equal("kind", string(f.Kind))
	list, err := all(t.s.read(ctx).once(), serviceFields, selectServices+w.String()+" ORDER BY name", w.args...)
	return list, t.s.explain(err)
}

// Versions is what services were asked to be, without the tasks, by hash and in order
// of their numbers.
func (t *Services) Versions(ctx context.Context, hashes []string) (map[string][]*ServiceVersion, error) {
	return t.versions(ctx, hashes, serviceVersionColumns.without("task", "config"))
}

func (t *Services) versions(ctx context.Context, hashes []string, of columns) (map[string][]*ServiceVersion, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	list, err := all(t.s.read(ctx).once(), func(v *ServiceVersion) []any { return append([]any{new(any)}, t.s.serviceVersionFields(v)[1:]...) },
		"SELECT "+of.list()+" FROM service_versions WHERE hash IN ("+marks(len(hashes))+") ORDER BY hash, number", anys(hashes)...)
	out := map[string][]*ServiceVersion{}
	for _, v := range list {
		out[v.Hash] = append(out[v.Hash], v)
	}
	return out, t.s.explain(err)
}

// Task is a version with its task, or [ErrNotFound].
func (t *Services) Task(ctx context.Context, hash string, number int) (*ServiceVersion, error) {
	v := &ServiceVersion{Hash: hash, Number: number}
	fields := t.s.serviceVersionFields(v)
	fields[0] = new(any)
	err := t.s.read(ctx).one(fields, selectServiceVersions+"WHERE hash = ? AND number = ?", hash, number)
	return v, t.s.explain(err)
}

// Replicas is the rows of services' replicas, by hash and in order of their ids.
func (t *Services) Replicas(ctx context.Context, hashes []string) (map[string][]*ServiceReplica, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	list, err := all(t.s.read(ctx).once(), serviceReplicaFields, selectServiceReplicas+"WHERE hash IN ("+marks(len(hashes))+") ORDER BY hash, id", anys(hashes)...)
	out := map[string][]*ServiceReplica{}
	for _, r := range list {
		out[r.Hash] = append(out[r.Hash], r)
	}
	return out, t.s.explain(err)
}

// AddVersion gives a service that is not to end its next version, and returns the
// version's number. A request that did so before gets what it got then.
// [ErrConflict]: the service is to end, or is another one by now.
func (t *Services) AddVersion(ctx context.Context, hash string, v *ServiceVersion) (int, error) {
	row := *v
	row.Hash = hash
	err := t.s.write(ctx, func(s *session) error {
		err := s.one([]any{number(&row.Number)}, "SELECT number FROM service_versions WHERE hash = ? AND request_id = ?", hash, row.RequestID)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		if err := changed(s.exec("UPDATE services SET latest = latest + 1, version = version + 1 WHERE hash = ? AND NOT down_asked", hash)); err != nil {
			return err
		}
		if err := s.one([]any{number(&row.Number)}, "SELECT latest FROM services WHERE hash = ?", hash); err != nil {
			return err
		}
		return changed(s.exec(insertServiceVersion, t.s.serviceVersionFields(&row)...))
	})
	return row.Number, err
}

// AskDown notes that services are to end.
func (t *Services) AskDown(ctx context.Context, hashes []string, purge bool) error {
	if len(hashes) == 0 {
		return nil
	}
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.once().exec("UPDATE services SET down_asked = ?, purge = CASE WHEN ? THEN ? ELSE purge END, status = ?, version = version + 1 WHERE hash IN ("+marks(len(hashes))+")",
			append([]any{true, purge, true, string(api.ServiceShuttingDown)}, anys(hashes)...)...)
		return err
	})
}

// AskUpdate notes what a user wants of the version that is about to take over;
// [ErrNotFound] if there is no such service.
func (t *Services) AskUpdate(ctx context.Context, hash string, asked ServiceAsked) error {
	err := t.s.writeAgain(ctx, func(s *session) error {
		return changed(s.exec("UPDATE services SET asked = ?, version = version + 1 WHERE hash = ?", string(asked), hash))
	})
	if errors.Is(err, ErrConflict) {
		return ErrNotFound
	}
	return err
}

// AskReplica notes what a user wants of a replica; [ErrNotFound] if there is none.
func (t *Services) AskReplica(ctx context.Context, hash string, id int, asked ReplicaAsked) error {
	err := t.s.writeAgain(ctx, func(s *session) error {
		if err := changed(s.exec("UPDATE service_replicas SET asked = ? WHERE hash = ? AND id = ?", string(asked), hash, id)); err != nil {
			return err
		}
		_, err := s.exec("UPDATE services SET version = version + 1 WHERE hash = ?", hash)
		return err
	})
	if errors.Is(err, ErrConflict) {
		return ErrNotFound
	}
	return err
}

// Orphans is the hashes of services on which no live server holds a lease, and of
// those that owner holds.
func (t *Services) Orphans(ctx context.Context, owner string) ([]string, error) {
	list, err := all(t.s.read(ctx), func(h *string) []any { return []any{text(h)} }, `SELECT v.hash FROM services v
		LEFT JOIN leases l ON l.name = '`+ServiceLease+`' || v.hash
		WHERE l.name IS NULL OR l.owner = '' OR l.owner = ? OR l.expires <= ? ORDER BY v.hash`, owner, nanos(t.s.Now()))
	return values(list), t.s.explain(err)
}

// AdoptAll makes the holder of leases, which are given by hash, the only one who may
// save those services. It returns the services of which that is true.
func (t *Services) AdoptAll(ctx context.Context, leases map[string]Lease) ([]ServiceAdopted, error) {
	var out []ServiceAdopted
	for hash, l := range leases {
		n := int64(0)
		err := t.s.writeAgain(ctx, func(s *session) (err error) {
			n, err = s.exec("UPDATE services SET epoch = ?, version = version + 1 WHERE hash = ? AND epoch <= ?", l.Epoch, hash, l.Epoch)
			return err
		})
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		a, err := t.Load(ctx, hash)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *a)
	}
	return out, nil
}

// Load is a service as it is stored, or [ErrNotFound].
func (t *Services) Load(ctx context.Context, hash string) (*ServiceAdopted, error) {
	v := new(Service)
	if err := t.s.read(ctx).one(serviceFields(v), selectServices+"WHERE hash = ?", hash); err != nil {
		return nil, t.s.explain(err)
	}
	versions, err := t.versions(ctx, []string{hash}, serviceVersionColumns)
	if err != nil {
		return nil, err
	}
	replicas, err := t.Replicas(ctx, []string{hash})
	return &ServiceAdopted{v, versions[hash], replicas[hash]}, err
}

// ServiceChange is what a controller has decided.
type ServiceChange struct {
	Service  *Service
	Replicas []*ServiceReplica // new ones, and those that changed
	Removed  []int             // ids of replicas that are over
	Dropped  []int             // numbers of versions that nothing needs any more
}

// Save writes a decision; [ErrConflict] if the service has changed since it was read,
// or the lease is another server's. On success the service has the new row version.
func (t *Services) Save(ctx context.Context, c ServiceChange) error {
	row := *c.Service
	row.Version++
	err := t.s.write(ctx, func(s *session) error {
		err := changed(s.exec("UPDATE services SET version = ?, ready_at = ?, status = ?, state = ?, shown = ?, asked = '' WHERE hash = ? AND version = ? AND epoch = ?",
			row.Version, instant(&row.ReadyAt), text(&row.Status), binary(&row.State), nested(&row.Shown), row.Hash, c.Service.Version, row.Epoch))
		if err != nil {
			return err
		}
		for _, r := range c.Replicas {
			if _, err := s.exec(upsertServiceReplica, serviceReplicaFields(r)...); err != nil {
				return err
			}
		}
		for _, id := range c.Removed {
			if _, err := s.exec("DELETE FROM service_replicas WHERE hash = ? AND id = ?", row.Hash, id); err != nil {
				return err
			}
		}
		for _, n := range c.Dropped {
			if _, err := s.exec("DELETE FROM service_versions WHERE hash = ? AND number = ?", row.Hash, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		c.Service.Version = row.Version
	}
	return err
}

// SaveReplica writes what is known of one replica, but for what decisions know of it;
// [ErrConflict] if there is no such replica, or the lease is another server's.
func (t *Services) SaveReplica(ctx context.Context, epoch int64, r *ServiceReplica) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		return changed(s.exec(`UPDATE service_replicas SET probes = ?, progress = ?, cluster_name = ?, cluster_hash = ?, cluster_job = ?, endpoint = ?
			WHERE hash = ? AND id = ? AND EXISTS (SELECT 1 FROM services WHERE services.hash = service_replicas.hash AND services.epoch = ?)`,
			binary(&r.Probes), binary(&r.Progress), text(&r.ClusterName), text(&r.ClusterHash), number(&r.ClusterJob), text(&r.Endpoint), r.Hash, r.ID, epoch))
	})
}

// Remove forgets a service with everything about it; [ErrConflict] as for Save.
func (t *Services) Remove(ctx context.Context, v *Service) error {
	return t.s.write(ctx, func(s *session) error {
		if err := changed(s.exec("DELETE FROM services WHERE hash = ? AND version = ? AND epoch = ?", v.Hash, v.Version, v.Epoch)); err != nil {
			return err
		}
		for _, table := range []string{"service_versions", "service_replicas"} {
			if _, err := s.exec("DELETE FROM "+table+" WHERE hash = ?", v.Hash); err != nil {
				return err
			}
		}
		_, err := s.exec("DELETE FROM leases WHERE name = ?", ServiceLease+v.Hash)
		return err
	})
}

// FilesInUse is the folders of files that versions of services need.
func (t *Services) FilesInUse(ctx context.Context) (map[string]bool, error) {
	type files struct{ list []string }
	list, err := all(t.s.read(ctx), func(f *files) []any { return []any{nested(&f.list)} }, "SELECT files FROM service_versions")
	out := map[string]bool{}
	for _, f := range list {
		for _, name := range f.list {
			out[name] = true
		}
	}
	return out, t.s.explain(err)
}

// Ports is those on which balancers listen.
func (t *Services) Ports(ctx context.Context) ([]int, error) {
	list, err := all(t.s.read(ctx), func(p *int) []any { return []any{number(p)} }, "SELECT port FROM services WHERE port > 0 ORDER BY port")
	return values(list), t.s.explain(err)
}

// Mark is another text when any service has changed.
func (t *Services) Mark(ctx context.Context) (string, error) {
	var n, versions, made int
	err := t.s.read(ctx).one([]any{number(&n), number(&versions), number(&made)}, "SELECT COUNT(*), CAST(COALESCE(SUM(version), 0) AS BIGINT), COALESCE(MAX(created_at), 0) FROM services")
	return fmt.Sprint(n, " ", versions, " ", made), t.s.explain(err)
}

var balancerReportColumns = columns{"balancer", "server", "at", "report"}

func balancerReportFields(r *BalancerReport) []any {
	return []any{text(&r.Balancer), text(&r.Server), instant(&r.At), binary(&r.Report)}
}

// SaveReports keeps reports of balancers in place of their earlier ones.
func (t *Services) SaveReports(ctx context.Context, reports []*BalancerReport) error {
	if len(reports) == 0 {
		return nil
	}
	return t.s.writeAgain(ctx, func(s *session) error {
		for _, r := range reports {
			if _, err := s.exec("INSERT INTO balancer_reports ("+balancerReportColumns.list()+") VALUES ("+balancerReportColumns.marks()+
				") ON CONFLICT (balancer) DO UPDATE SET "+excluded(balancerReportColumns[1:]), balancerReportFields(r)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reports is the reports of balancers that others than a server have got after a time.
func (t *Services) Reports(ctx context.Context, server string, after time.Time) ([]*BalancerReport, error) {
	list, err := all(t.s.read(ctx), balancerReportFields,
		"SELECT "+balancerReportColumns.list()+" FROM balancer_reports WHERE at > ? AND server <> ? ORDER BY balancer", nanos(after), server)
	return list, t.s.explain(err)
}

// ForgetReports removes the reports of balancers that have not been heard since a time.
func (t *Services) ForgetReports(ctx context.Context, before time.Time) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("DELETE FROM balancer_reports WHERE at < ?", nanos(before))
		return err
	})
}

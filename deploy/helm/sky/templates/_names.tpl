{{- define "sky.name" -}}
{{- $name := printf "%s-sky" .Release.Name }}
{{- if contains "sky" .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "sky.selector" -}}
app.kubernetes.io/name: sky
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sky.labels" -}}
{{ include "sky.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sky.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "sky.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "sky.hosts" -}}
{{- $name := include "sky.name" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- if .Values.ingress.enabled }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end -}}
{{- join "," (concat $hosts .Values.hosts | uniq) }}
{{- end }}

{{- define "sky.encryption" -}}
{{- .Values.encryption.secret | default (printf "%s-encryption" (include "sky.name" .)) }}
{{- end }}

{{/* The names of the edges and of the nodes: the release's, and so that of a release named sluice is sluice and memcached. */}}
{{- define "sluice.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- define "sluice.memcached" -}}
{{- if eq (include "sluice.name" .) "sluice" -}}memcached{{- else -}}{{ include "sluice.name" . }}-memcached{{- end -}}
{{- end -}}
{{/* Where edges reach their nodes: a list of HOST:PORT. */}}
{{- define "sluice.nodes" -}}
{{- $nodes := list -}}
{{- if .Values.memcached.enabled -}}
{{- $name := include "sluice.memcached" . -}}
{{- range until (int .Values.memcached.replicas) -}}
{{- $nodes = append $nodes (printf "%s-%d.%s:11211" $name . $name) -}}
{{- end -}}
{{- else -}}
{{- $nodes = .Values.memcached.addresses -}}
{{- end -}}
{{- toJson $nodes -}}
{{- end -}}

{{/* Labels of everything. */}}
{{- define "stepvad.labels" -}}
app.kubernetes.io/name: stepvad-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What pods of a part are known by: (dict "root" $ "part" "writer"). */}}
{{- define "stepvad.selector" -}}
app.kubernetes.io/name: stepvad-fleet
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "stepvad.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What a container may do: nothing. */}}
{{- define "stepvad.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Who a pod runs as: the user of the image. */}}
{{- define "stepvad.pod" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A ConfigMap, and below it certs/ with ca.pem and NAME.pem, NAME.key of each Secret:
(dict "config" CONFIGMAP "certificates" (list (list SECRET NAME) ...)). */}}
{{- define "stepvad.etc" -}}
projected:
  defaultMode: 0440
  sources:
    - configMap: {name: {{ .config }}}
  {{- range $index, $one := .certificates }}
    - secret:
        name: {{ index $one 0 }}
        items:
          - {key: tls.crt, path: certs/{{ index $one 1 }}.pem}
          - {key: tls.key, path: certs/{{ index $one 1 }}.key}
          {{- if eq $index 0 }}
          - {key: ca.crt, path: certs/ca.pem}
          {{- end }}
  {{- end }}
{{- end }}

{{/* Where the database is, for a role that a certificate vouches for: (dict "root" $ "role" ...). */}}
{{- define "stepvad.dsn" -}}
{{- $database := .root.Values.database -}}
{{- $certs := "/etc/stepvad/certs" -}}
postgresql://{{ .role }}@{{ $database.host }}:{{ $database.port }}/{{ $database.name }}?sslmode=verify-full&sslrootcert={{ $certs }}/ca.pem&sslcert={{ $certs }}/{{ .role }}.pem&sslkey={{ $certs }}/{{ .role }}.key
{{- end }}

{{/* A claim for a disk: (dict "name" NAME "storage" STORAGE). */}}
{{- define "stepvad.claim" -}}
- metadata: {name: {{ .name }}}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storage.className }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .storage.size }}}}
{{- end }}

{{/* What every pod of ours has: (dict "user" UID). */}}
{{- define "stepvad.account" -}}
serviceAccountName: stepvad-fleet
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "stepvad.pod" .user | nindent 2 }}
{{- end }}

{{/* One pod of a part that is missing at a time: (dict "root" $ "part" PART). */}}
{{- define "stepvad.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name | default .part }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "stepvad.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "stepvad.selector" . | nindent 6 }}
{{- end }}

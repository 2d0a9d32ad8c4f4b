{{- define "zubble.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of (root, component). */}}
{{- define "zubble.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Of (root, component). */}}
{{- define "zubble.labels" -}}
{{- $root := index . 0 -}}
{{ include "zubble.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "zubble.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Of (root, pool's own values): the values of `worker` with those of the pool in their place. */}}
{{- define "zubble.pool" -}}
{{- $all := deepCopy (index . 0).Values.worker -}}
{{- range $key, $value := (index . 1) | default dict -}}
{{- $_ := set $all $key $value -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* "true" where a pool makes pods; else empty. */}}
{{- define "zubble.makesPods" -}}
{{- $found := "" -}}
{{- range $own := .Values.pools -}}
{{- $pool := include "zubble.pool" (list $ $own) | fromYaml -}}
{{- if has "pod" $pool.sandboxes -}}{{- $found = "true" -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{- define "zubble.sandboxNamespace" -}}
{{- .Values.sandbox.namespace | default (printf "%s-sandboxes" .Release.Namespace) -}}
{{- end -}}

{{/* Of (root, part). Cluster-wide names. */}}
{{- define "zubble.priorityClass" -}}
{{- printf "%s-%s-%s" (index . 0).Release.Namespace (include "zubble.name" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* Of (root, component, account, priority class, values with nodeSelector and tolerations). */}}
{{- define "zubble.pod" -}}
{{- $root := index . 0 -}}
{{- $values := index . 4 -}}
serviceAccountName: {{ index . 2 }}
{{- if $root.Values.priorityClasses.create }}
priorityClassName: {{ include "zubble.priorityClass" (list $root (index . 3)) }}
{{- end }}
# A Service called zubble would otherwise set ZUBBLE_PORT, which is no setting.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of a seccomp profile. */}}
{{- define "zubble.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {{- toYaml . | nindent 2 }}
{{- end -}}

{{- define "zubble.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What every process of ours reads. */}}
{{- define "zubble.environment" -}}
- name: ZUBBLE_CONFIG
  value: /etc/zubble/zubble.toml
- name: ZUBBLE_HOME
  value: /var/lib/zubble
{{- if .Values.redis.deploy }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.secretName }}, key: {{ .Values.redis.passwordKey }}}
- name: ZUBBLE_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "zubble.name" . }}-redis.{{ .Release.Namespace }}.svc:6379/0
{{- else }}
- name: ZUBBLE_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.secretName }}, key: {{ .Values.redis.urlKey }}}
{{- end }}
{{- end -}}

{{- define "zubble.mounts" -}}
- {name: config, mountPath: /etc/zubble, readOnly: true}
- {name: home, mountPath: /var/lib/zubble}
- {name: tmp, mountPath: /tmp}
{{- if and (not .Values.redis.deploy) .Values.redis.tlsSecretName }}
- {name: redis-tls, mountPath: /etc/zubble-redis-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Of (root, size of home, size of /tmp). */}}
{{- define "zubble.volumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap: {name: {{ include "zubble.name" $root }}}
- name: home
  emptyDir: {sizeLimit: {{ index . 1 }}}
- name: tmp
  emptyDir: {sizeLimit: {{ index . 2 }}}
{{- if and (not $root.Values.redis.deploy) $root.Values.redis.tlsSecretName }}
- name: redis-tls
  secret: {secretName: {{ $root.Values.redis.tlsSecretName }}}
{{- end }}
{{- end -}}

{{/* Of (path, port): an HTTP server that answers while its event loop turns. */}}
{{- define "zubble.probes" -}}
startupProbe:
  httpGet: {path: {{ index . 0 }}, port: {{ index . 1 }}}
  periodSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet: {path: {{ index . 0 }}, port: {{ index . 1 }}}
  periodSeconds: 10
  timeoutSeconds: 10
livenessProbe:
  httpGet: {path: {{ index . 0 }}, port: {{ index . 1 }}}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end -}}

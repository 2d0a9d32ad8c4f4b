{{/* Where blobs are, and who asks for them. */}}
{{- define "zubble.artifacts" -}}
- name: ZUBBLE_ARTIFACTS_URL
  value: {{ .Values.artifacts.url | default "/var/lib/zubble/artifacts" }}
{{- with .Values.artifacts.endpointUrl }}
- name: AWS_ENDPOINT_URL
  value: {{ . }}
{{- end }}
{{- if .Values.artifacts.secretName }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .Values.artifacts.secretName }}, key: {{ .Values.artifacts.accessKeyIdKey }}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .Values.artifacts.secretName }}, key: {{ .Values.artifacts.secretAccessKeyKey }}}
{{- end }}
{{- end -}}

{{/* The options of the backend `pod`; they go over a table [sandboxes.pod] of the configuration. */}}
{{- define "zubble.podOptions" -}}
{{- $options := dict
  "NAMESPACE" (include "zubble.sandboxNamespace" .)
  "SERVICE_ACCOUNT" "zubble-sandbox"
  "BOX_IMAGE" (.Values.sandbox.boxImage | default (include "zubble.image" .))
  "IMAGE" .Values.sandbox.image
  "REQUIRE_DIGEST" (toString .Values.sandbox.requireDigest)
  "PULL_POLICY" .Values.image.pullPolicy
  "PULL_SECRETS" (join "," .Values.sandbox.pullSecrets)
  "RUNTIME_CLASS" .Values.sandbox.runtimeClass
  "USER_NAMESPACES" (toString .Values.sandbox.userNamespaces)
  "CPUS" (toString .Values.sandbox.cpus)
  "WORK_MEDIUM" .Values.sandbox.workMedium
  "START_SECONDS" (toString .Values.sandbox.startSeconds)
  "REQUIRE_NETWORK_POLICY" (toString .Values.sandbox.requireNetworkPolicy)
  "CANARY_ADDRESS" .Values.sandbox.canaryAddress
-}}
{{- with .Values.sandbox.nodeSelector }}{{ $_ := set $options "NODE_SELECTOR" (toJson .) }}{{ end }}
{{- with .Values.sandbox.tolerations }}{{ $_ := set $options "TOLERATIONS" (toJson .) }}{{ end }}
{{- if .Values.priorityClasses.create }}
{{- $_ := set $options "PRIORITY_CLASS" (include "zubble.priorityClass" (list . "sandbox")) }}
{{- end }}
{{- range $option, $value := $options }}
{{- if $value }}
- name: ZUBBLE_SANDBOXES__POD__{{ $option }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

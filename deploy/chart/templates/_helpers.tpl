{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "penstock.image" -}}
{{ .root.Values.image.prefix }}{{ .name }}:{{ default .root.Chart.AppVersion .root.Values.image.tag }}
{{- end }}

{{/* Labels of everything; with a component, of what belongs to one. */}}
{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
{{- with . }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "penstock.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "penstock.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.egress" -}}
- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
- ports:
  {{- range .Values.networkPolicy.egressPorts }}
  - port: {{ . }}
  {{- end }}
{{- end }}

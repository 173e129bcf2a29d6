"""Event sinks: MQTT broker, webhooks, file and messages to people."""

//! The doors of Umbel: RESP for every Redis client, HTTP for health and metrics.

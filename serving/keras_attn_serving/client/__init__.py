"""Clients: texts in, texts and arrays out, by gRPC or REST."""

from keras_attn_serving.client.async_client import AsyncClient as AsyncClient
from keras_attn_serving.client.client import Client as Client
from keras_attn_serving.client.rest_client import RestClient as RestClient

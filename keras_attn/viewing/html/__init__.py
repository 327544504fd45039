"""Pages that show attention in a browser, each in one file."""

from keras_attn.viewing.html.page import attention_html as attention_html

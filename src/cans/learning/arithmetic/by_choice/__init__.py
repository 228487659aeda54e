"""What is known of every choice by itself, beside the lines that explain all of them."""

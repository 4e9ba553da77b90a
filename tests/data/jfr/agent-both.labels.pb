





goldeunone
regionGET /checkoutcustomer